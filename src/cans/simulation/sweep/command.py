"""`cans sweep`: run what is not there yet, write the file, and show it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cans.errors import InputError
from cans.simulation.commands import progress_bar
from cans.simulation.sweep.cells import Played, Row, cell_name, read_traces
from cans.simulation.sweep.grid import Sweep, read_sweep
from cans.simulation.sweep.picture import sweep_svg
from cans.simulation.sweep.results import (
    check_file,
    default_file,
    journal_of,
    read_rows,
    write_rows,
)
from cans.simulation.sweep.running import run_cells
from cans.simulation.sweep.summary import Group, summarise
from cans.simulation.workers.workers import check_one, open_workers


@dataclass(frozen=True)
class Where:
    """On what a sweep runs: a cluster, or so many processes of this machine."""

    dask: str | None = None
    ray: str | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        check_one(self.dask, self.ray, self.processes)


def sweep(source: Path, out: Path | None, where: Where, replace: bool) -> tuple[Path, str]:
    """Run the cells of a sweep that its file does not have yet; returns the file, and a sentence
    about what was done."""
    wanted = read_sweep(source)
    path = default_file(source.stem) if out is None else out
    check_file(path)
    traces = read_traces(wanted.cells)
    names = [cell_name(cell, wanted.engine, traces) for cell in wanted.cells]
    with journal_of(path) as journal:
        known = {row["cell"]: row for row in journal.rows()}
        known |= _finished(path, set(names), replace)
        missing = [
            cell for cell, name in zip(wanted.cells, names, strict=True) if name not in known
        ]
        said = f"{len(wanted.cells):,} cells, {len(missing):,} of them run"
        if missing:
            workers = open_workers(where.dask, where.ray, where.processes)
            try:
                with progress_bar(_title(wanted, len(missing)), len(missing)) as advance:

                    def keep(played: Played) -> None:
                        journal.add(played.rows)
                        known.update({row["cell"]: row for row in played.rows})
                        advance(len(played.rows))

                    idle = run_cells(missing, wanted.engine, traces, workers, keep)
                said += f"; {idle:.1%} of the workers' time went into handing them over"
            finally:
                workers.close()
        write_rows(path, [known[name] for name in names])
    return path, said


def _title(wanted: Sweep, missing: int) -> str:
    return f"{wanted.name}: {missing:,} of {len(wanted.cells):,} cells"


def _finished(path: Path, names: set[str], replace: bool) -> dict[str, Row]:
    """The rows of a file that is there already; what is not of this sweep must not get lost."""
    if not path.exists():
        return {}
    rows = {row["cell"]: row for row in read_rows(path)}
    foreign = len(rows.keys() - names)
    if foreign and not replace:
        raise InputError(
            f"{path} has {foreign:,} cells that are not of this sweep or were run by another"
            " version: name another --out, or --replace them"
        )
    return rows


def show(path: Path, about: str, as_json: bool, plot: Path | None) -> None:
    """Print the summary of a sweep's file, and draw it."""
    rows = read_rows(path)
    if not rows:
        raise InputError(f"{path} has no cells")
    groups = summarise(rows)
    if plot is not None:
        try:
            plot.write_text(sweep_svg(groups, path.stem), "utf-8")
        except OSError as error:
            raise InputError(f"cannot write {plot}: {error.strerror}") from None
    if as_json:
        document: dict[str, Any] = {
            "file": str(path),
            "cells": len(rows),
            "groups": [each.to_dict() for each in groups],
        }
        print(json.dumps(document))
        return
    _print_table(groups, path, about, plot)


def _print_table(groups: list[Group], path: Path, about: str, plot: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    many = {name: len({each.axes[name] for each in groups}) > 1 for name in groups[0].axes}
    fixed = ", ".join(f"{name} {value}" for name, value in groups[0].axes.items() if not many[name])
    table = Table(title="Mean and 95 % interval over seeds", title_justify="left", caption=fixed)
    for name in (name for name in many if many[name]):
        table.add_column(name)
    for heading in ("seeds", "regret (s)", "latency (ms)", "error (ms)", "uploads"):
        table.add_column(heading, justify="right")
    for each in groups:
        numbers = each.numbers
        table.add_row(
            *("-" if value is None else str(value) for n, value in each.axes.items() if many[n]),
            str(each.seeds),
            _text(numbers["regret_ms"], 1e-3),
            _text(numbers["mean_latency_ms"]),
            _text(numbers["estimation_error_ms"]),
            _text(numbers["uploads"], digits=0),
        )
    console = Console()
    console.print(table)
    if about:
        console.print(about)
    console.print(f"file: {path}", soft_wrap=True)
    if plot is not None:
        console.print(f"plot: {plot}", soft_wrap=True)


def _text(interval: Any, scale: float = 1.0, digits: int = 3) -> str:
    if interval is None:
        return "-"
    mean, half = interval.mean * scale, interval.half_width * scale
    around = f" ± {half:.{digits}f}" if half < float("inf") else ""
    return f"{mean:.{digits}f}{around}"
