"""The file of a sweep's rows, Parquet or CSV, and the journal of those that are finished already.

The journal stands beside the file, `FILE.cells`: a line of JSON per cell, written as batches come
in. An interrupted sweep goes on from it; when all cells are there, the file is written at once and
the journal goes. Numbers are kept exactly in all three.
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import IO, Any, get_args, get_type_hints

from cans.errors import InputError
from cans.learning.policies import Hyperparameters
from cans.simulation.run import Settings
from cans.simulation.sweep.cells import Row

SUFFIXES = (".parquet", ".csv")


def _setting_types() -> dict[str, type]:
    """Column -> int, float or str, as the dataclasses say; what is neither is text."""
    types: dict[str, type] = {}
    for owner in (Settings, Hyperparameters):
        hints = get_type_hints(owner)
        for each in fields(owner):
            hint = hints[each.name]
            options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
            plain = [option for option in options if option is not type(None)]
            types[each.name] = plain[0] if plain in ([int], [float]) else str
    types.pop("hyperparameters")
    return types


COLUMNS: dict[str, type] = {
    **_setting_types(),
    "types": int, "engine": str, "seed": int,
    "regret_ms": float, "mean_latency_ms": float, "estimation_error_ms": float,
    "uploads": int, "bytes": int, "ties": int, "probes": int, "picks": str, "cell": str,
}  # fmt: skip


def default_file(name: str) -> Path:
    """`NAME.parquet`, or `NAME.csv` without pyarrow."""
    return Path(f"{name}.parquet" if find_spec("pyarrow") else f"{name}.csv")


def check_file(path: Path) -> None:
    """Whether such a file can be written and read here."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"the results must be a .parquet or .csv file, not {path}")
    if path.suffix == ".parquet" and not find_spec("pyarrow"):
        raise InputError(
            f"{path} needs pyarrow: pip install 'cans-edge[cluster]', or name a .csv file"
        )


def write_rows(path: Path, rows: list[Row]) -> None:
    """All rows, at once."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        if path.suffix == ".csv":
            with unfinished.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(COLUMNS))
                writer.writeheader()
                writer.writerows(rows)
        else:
            import pyarrow as pa
            from pyarrow import parquet

            kinds = {int: pa.int64(), float: pa.float64(), str: pa.string()}
            schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
            parquet.write_table(pa.Table.from_pylist(rows, schema), unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def read_rows(path: Path) -> list[Row]:
    """The rows of a finished file."""
    check_file(path)
    try:
        rows = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    except (OSError, UnicodeDecodeError) as error:
        why = "there is no such file" if not path.exists() else error  # Arrow's error is a page
        raise InputError(f"cannot read {path}: {why}") from None
    except (ValueError, KeyError, TypeError, csv.Error):
        raise InputError(f"{path} is not the file of a sweep") from None
    if rows and not COLUMNS.keys() <= rows[0].keys():
        raise InputError(f"{path} is not the file of a sweep of this version")
    return rows


def _read_csv(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {name: COLUMNS[name](text) if text else None for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


def _read_parquet(path: Path) -> list[Row]:
    from pyarrow import parquet

    rows: list[Row] = parquet.read_table(path).to_pylist()
    return rows


class Journal:
    """The cells that are finished."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self.path, self._file = path, file

    def rows(self) -> Iterator[Row]:
        """What is in it; a last line that was cut off is no row, and will be overwritten."""
        self._file.seek(0)
        end = 0
        while line := self._file.readline():
            try:
                row = json.loads(line)
                finished = line.endswith("\n") and isinstance(row, dict) and "cell" in row
            except ValueError:
                finished = False
            if not finished:
                break
            end = self._file.tell()
            yield row
        self._file.seek(end)
        self._file.truncate()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep rows, whatever happens to this process afterwards."""
        self._file.writelines(json.dumps(row) + "\n" for row in rows)
        self._file.flush()


@contextmanager
def journal_of(path: Path) -> Iterator[Journal]:
    """The journal beside a file, for one process at a time."""
    place = path.with_name(f"{path.name}.cells")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another sweep is writing {path}") from None
        finished = False
        try:
            yield Journal(place, file)
            finished = True
        finally:
            if finished or place.stat().st_size == 0:
                place.unlink()
