"""Plays cells, and what is written down of each: its setting, its numbers, and its name.

A cell's name is a digest of its setting, its seed, the engine, the trace's bytes and the code that
computes the numbers, so that what was run by other code is never taken for a result of this one.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from cans.simulation.metrics import measure
from cans.simulation.reproduce.studies.experiments import Study
from cans.simulation.run import play
from cans.simulation.sweep.grid import Cell

NUMBERS = (
    "regret_ms", "mean_latency_ms", "estimation_error_ms", "uploads", "bytes", "ties", "probes",
)  # fmt: skip

_NO_MATTER = ("reproduce", "sweep", "workers", "commands.py")  # to the numbers of a cell

Row = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Cells that one worker plays one after the other, and the traces they need, by path."""

    cells: tuple[Cell, ...]
    engine: str
    traces: Mapping[Path, bytes]


@dataclass(frozen=True)
class Played:
    """What came of a batch."""

    rows: tuple[Row, ...]
    seconds: tuple[float, ...]  # each cell's
    code: str  # of whom played it


def play_batch(batch: Batch) -> Played:
    """Play every cell; called in a worker."""
    rows, seconds = [], []
    with tempfile.TemporaryDirectory(prefix="cans-sweep-") as folder:
        here = {path: Path(folder) / path.name for path in batch.traces}
        for path, copy in here.items():
            copy.write_bytes(batch.traces[path])
        for cell in batch.cells:
            began = time.perf_counter()
            rows.append(_play(cell, batch, here))
            seconds.append(time.perf_counter() - began)
    return Played(tuple(rows), tuple(seconds), code_digest())


def _play(cell: Cell, batch: Batch, here: Mapping[Path, Path]) -> Row:
    setting = cell.study
    if setting.settings.trace is not None:
        copy = here[setting.settings.trace]
        setting = replace(setting, settings=replace(setting.settings, trace=copy))
    world = setting.make_world()
    record = play(setting.settings, batch.engine, cell.seed, world)
    run = measure(cell.seed, record, world, setting.settings)
    document = run.to_dict()
    return (
        setting_row(cell.study, batch.engine)
        | {"seed": cell.seed}
        | {name: document[name] for name in NUMBERS}
        | {
            "picks": json.dumps(document["picks"]),
            "cell": cell_name(cell, batch.engine, batch.traces),
        }
    )


def setting_row(setting: Study, engine: str) -> Row:
    """The columns of a setting; what has no plain type stands there as text."""
    settings = setting.settings
    row = {each.name: getattr(settings, each.name) for each in fields(settings)}
    numbers = row.pop("hyperparameters")
    row |= {each.name: getattr(numbers, each.name) for each in fields(numbers)}
    row |= {"types": setting.types, "engine": engine}
    row["beta_ms"] = str(numbers.beta_ms)  # a number or a word
    return {
        name: value if value is None or isinstance(value, int | float | str) else str(value)
        for name, value in row.items()
    }


def cell_name(cell: Cell, engine: str, traces: Mapping[Path, bytes]) -> str:
    """What tells this cell from every other."""
    row = setting_row(cell.study, engine) | {"seed": cell.seed, "code": code_digest()}
    trace = cell.study.settings.trace
    if trace is not None:
        row["trace"] = hashlib.sha256(traces[trace]).hexdigest()
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:20]


def read_traces(cells: Sequence[Cell]) -> dict[Path, bytes]:
    """The bytes of every trace that cells play back: workers elsewhere have no such file."""
    paths = {cell.study.settings.trace for cell in cells}
    return {path: path.read_bytes() for path in paths if path is not None}


@cache
def code_digest() -> str:
    """Of all that the numbers come from: learner, worlds, engines, and the libraries below."""
    digest = hashlib.sha256()
    for package in ("cans.learning", "cans.simulation"):
        root = Path(str(files(package)))
        for file in sorted(root.rglob("*")):
            parts = file.relative_to(root).parts
            if file.suffix in (".py", ".json") and parts[0] not in _NO_MATTER:
                digest.update(f"{package}/{'/'.join(parts)}\n".encode() + file.read_bytes())
    for library in ("numpy", "numba"):
        digest.update(f"{library} {_version(library)}\n".encode())
    return digest.hexdigest()[:12]


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
