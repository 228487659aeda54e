"""`cans device`: run inferences, say what was chosen and why."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np
import typer

from cans.errors import CansError, InputError, RunError
from cans.learning.constraints import Constraints
from cans.live.device.command.obeying import Obedience
from cans.live.device.device import Device
from cans.live.device.hooked import HookedDevice
from cans.live.device.reporting.report import Report
from cans.live.split import Arrays
from cans.models.run.inputs import random_inputs, read_arrays


def run_device(
    server: str,
    model: str | None,
    kind: str,
    source: str,
    count: int,
    interval_ms: float,
    log_jsonl: Path | None,
    as_json: bool,
    obey: bool = False,
    output: Path | None = None,
    **options: Any,
) -> None:
    """Run so many inferences; one document, or one line each."""
    reports: list[Report] = []
    failures: list[str] = []
    interrupted = False
    with ExitStack() as stack:
        lines = _opened(log_jsonl, stack)
        results = Results(output, count)
        bar = stack.enter_context(_FetchBar())
        device = HookedDevice(server, model, kind, progress=bar.show, **options)
        stack.enter_context(device)
        _check_depth(device, options.get("constraints"))
        inputs = _Inputs(source, device, options.get("seed"))
        if obey:
            Obedience(device, inputs.next).run(sys.stdin, sys.stdout)
            return
        try:
            for number in range(count):
                if number and interval_ms > 0:
                    time.sleep(interval_ms / 1e3)
                try:
                    result = device.run(inputs.next())
                except InputError:
                    raise
                except CansError as error:
                    failures.append(str(error))
                    typer.echo(f"cans: inference {number + 1}: {error}", err=True)
                    continue
                report = result.report
                reports.append(report)
                results.write(number, result.outputs)
                if lines is not None:
                    entry = {"time": time.time(), **report.to_dict(choices=False)}
                    _write_line(lines, json.dumps(entry))
                if not as_json:
                    typer.echo(str(report))
            device.settle(2.0)
        except KeyboardInterrupt:  # what was done until then is worth its document
            interrupted = True
        if as_json:
            typer.echo(json.dumps(_document(device, reports, failures)))
    if interrupted:
        raise KeyboardInterrupt
    if failures:
        raise RunError(f"{len(failures)} of {count} inferences were not answered: {failures[-1]}")


def _check_depth(device: Device, constraints: Constraints | None) -> None:
    """A floor that no point reaches is a mistake, not a wish for local runs only."""
    if constraints is not None and constraints.min_local_depth > device.model.last:
        raise InputError(
            f"--min-local-depth {constraints.min_local_depth}: {device.model.name} has points 0 "
            f"to {device.model.last} (the last one is local)"
        )


def _document(device: Device, reports: list[Report], failures: list[str]) -> dict[str, Any]:
    totals = [each.total_ms for each in reports]
    picks: dict[str, int] = {}
    for each in reports:
        picks[str(each.point)] = picks.get(str(each.point), 0) + 1
    return {
        "device": device.identity.device,
        "type": device.identity.type,
        "network": device.identity.network,
        "model": device.model.name,
        "digest": device.model.digest,
        "joined": device.joined,
        "answered": len(reports),
        "failed": len(failures),
        "fallbacks": sum(bool(each.fallback) for each in reports),
        "refused": device.refused,
        "mean_latency_ms": float(np.mean(totals)) if totals else None,
        "p99_latency_ms": float(np.quantile(totals, 0.99)) if totals else None,
        "picks": picks,
        "inferences": [each.to_dict(choices=False) for each in reports],
        "last": reports[-1].to_dict() if reports else None,
    }


class Results:
    """Where outputs are written: an .npz file for one inference, a folder of them for several."""

    def __init__(self, path: Path | None, count: int) -> None:
        self._path = path
        self._one = path is not None and path.suffix == ".npz"
        if path is None:
            return
        if self._one and count > 1:
            raise InputError(f"--output {path} holds one result; name a folder for {count}")
        try:
            (path.parent if self._one else path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to --output {path}: {error.strerror}") from None

    def write(self, number: int, outputs: Arrays) -> None:
        """Keep the outputs of an inference, counted from 0."""
        if self._path is None:
            return
        file = self._path if self._one else self._path / f"{number:06d}.npz"
        try:
            with ZipFile(file, "w") as archive:  # not np.savez: an output may be called "file"
                for name, value in outputs.items():
                    with archive.open(f"{name}.npy", "w") as entry:
                        np.lib.format.write_array(entry, np.asarray(value), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise RunError(f"cannot write {file}: {error}") from None


class _Inputs:
    """Random inputs, or those of a file: every array as it is, or one of a leading batch axis."""

    def __init__(self, source: str, device: Device, seed: int | None) -> None:
        self._random = np.random.default_rng(seed)
        self._model = device.model
        self._file: dict[str, Any] | None = None
        if source != "random":
            self._file = read_arrays(Path(source), [each.name for each in self._model.inputs])

    def next(self) -> Arrays:
        return random_inputs(self._model.inputs, self._random) if self._file is None else self._file


def _opened(path: Path | None, stack: ExitStack) -> IO[str] | None:
    if path is None:
        return None
    try:
        file = path.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    stack.callback(_close, file)
    return file


def _write_line(file: IO[str], line: str) -> None:
    try:
        file.write(f"{line}\n")
    except OSError as error:
        raise RunError(f"cannot write {file.name}: {error.strerror}") from None


def _close(file: IO[str]) -> None:
    """What a full disk did not take was told when it was written."""
    with suppress(OSError):
        file.close()


class _FetchBar:
    """A progress bar on standard error, shown only if a model is fetched."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _FetchBar:
        return self

    def show(self, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

            console = Console(stderr=True)
            self._bar = Progress(
                TextColumn("fetching the model"), BarColumn(), DownloadColumn(),
                console=console, transient=True, disable=not console.is_terminal,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task("fetch", total=total)
        self._bar.update(self._task, completed=done)
        if done >= total:
            self._bar.stop()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
