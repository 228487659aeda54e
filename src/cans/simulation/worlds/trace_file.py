"""The CSV file of a trace: a row per measured inference, checked as it is read.

Repeated rows of one (device type, network, point) are samples. Columns named `front:NAME`,
`link:NAME` or `server:NAME` are features of that segment, in the place of its MACs or bytes: work
by class, say. `shape` is there where the size of the input varies, `from_round` where what was
measured holds from a round on. Some traces of the testbed come with the package.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cans.errors import InputError
from cans.learning.plausibility import Limits

TEXT = ("device_type", "network", "point")
NUMBERS = ("bytes", "front_macs", "back_macs", "front_ms", "link_ms", "server_ms")
USUAL = {"front": ("front_macs",), "link": ("bytes",), "server": ("back_macs",)}
"""What explains a segment unless the trace has features of its own for it."""

WORK, MEASURED = ("front_macs", "bytes", "back_macs"), ("front_ms", "link_ms", "server_ms")

_SHIPPED = files("cans.simulation.worlds").joinpath("data", "traces")

Row = dict[str, float]


class Key(NamedTuple):
    """Whose samples rows are."""

    device_type: str
    network: str
    point: str
    shape: str  # empty: of one shape
    from_round: int  # they hold from then on

    @property
    def place(self) -> tuple[str, str]:
        return self.device_type, self.network


def shipped_traces() -> list[str]:
    """Names of the traces that come with the package."""
    names = (each.name for each in _SHIPPED.iterdir())
    return sorted(name.removesuffix(".csv") for name in names if name.endswith(".csv"))


def find_trace(path: Path, folder: Path | None = None) -> Path:
    """The file of a path, relative to a folder, or of the name of a shipped trace; a file of that
    name comes first."""
    here = path if folder is None else folder / path
    if not here.exists() and str(path) in shipped_traces():
        return Path(str(_SHIPPED.joinpath(f"{path}.csv")))
    return here


def read_trace(path: Path) -> dict[Key, list[Row]]:
    """The measured rows, by whose they are; a bad file is an error that says where."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in (*TEXT, *NUMBERS) if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: missing column {', '.join(missing)}")
            header = list(reader.fieldnames or ())
            twice = {name for name in header if header.count(name) > 1}
            if twice:
                raise InputError(f"{path}: column {', '.join(sorted(twice))} is there twice")
            own = [name for name in header if is_feature(name)]
            rows: dict[Key, list[Row]] = defaultdict(list)
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                key = Key(
                    row["device_type"],
                    row["network"],
                    row["point"],
                    row.get("shape") or "",
                    _round(row.get("from_round") or "0", where),
                )
                rows[key].append(_numbers(row, where, (*NUMBERS, *own)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        shipped = ", ".join(shipped_traces())
        raise InputError(f"cannot read trace {path}: {error}; shipped: {shipped}") from None
    if not rows:
        raise InputError(f"{path}: no measured rows")
    return dict(rows)


def _round(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{where}: from_round must be a round, 0 or later: {text!r}")
    return int(text)


def is_feature(column: str) -> bool:
    """Whether a column is a feature that the trace brings along: `front:conv`, say."""
    segment, colon, name = column.partition(":")
    return segment in USUAL and bool(colon) and bool(name)


def feature_columns(rows: dict[Key, list[Row]]) -> dict[str, tuple[str, ...]]:
    """Which columns explain each segment."""
    names = next(iter(rows.values()))[0]
    own = {
        segment: tuple(name for name in names if name.startswith(f"{segment}:"))
        for segment in USUAL
    }
    return {segment: own[segment] or usual for segment, usual in USUAL.items()}


def check_explained(
    rows: dict[Key, list[Row]], columns: dict[str, tuple[str, ...]], local: str
) -> None:
    """Raise where no feature can explain what was measured: a column of zeros (nobody knew the
    work, or the bytes), or time at the local point, where nothing crosses and nothing follows."""
    every = [row for found in rows.values() for row in found]
    for segment, names in columns.items():
        measured = f"{segment}_ms"
        taken = segment == "front" or any(row[measured] > 0 for row in every)
        if taken and not any(row[name] > 0 for row in every for name in names):
            raise InputError(
                f"{', '.join(names)}: 0 in every row, so nothing explains {measured}; give what "
                f"each point has of it, or columns {segment}:NAME"
            )
        if segment == "front":
            continue
        at_local = [row for key, found in rows.items() if key.point == local for row in found]
        for name in (*names, measured):
            if any(row[name] > 0 for row in at_local):
                raise InputError(f"{name} must be 0 at {local!r}, the local point")


def _numbers(row: dict[str, str], where: str, names: Sequence[str]) -> Row:
    numbers = {}
    for name in names:
        try:
            numbers[name] = float(row[name])
        except (TypeError, ValueError):
            raise InputError(f"{where}: {name} is not a number: {row[name]!r}") from None
        if not np.isfinite(numbers[name]) or numbers[name] < 0:
            raise InputError(f"{where}: {name} must be finite and not negative: {row[name]}")
        if name in MEASURED and numbers[name] > Limits.highest_ms:
            raise InputError(
                f"{where}: {name} must be milliseconds, at most {Limits.highest_ms:,.0f} "
                f"(ten minutes): {row[name]}"
            )
    return numbers
