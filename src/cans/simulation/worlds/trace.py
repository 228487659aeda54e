"""World `trace`: measured inferences, one row each, played back.

Repeated rows of one (device type, network, point) are samples to draw from; what was never measured
for a type is not a choice for it. Where rows carry a shape, each round has an input of one of the
shapes, all as often, and the rows of the learner's table are those of that shape. Columns named
`front:NAME`, `link:NAME` or `server:NAME` are features of that segment, in the place of its MACs or
bytes: work by class, say.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cans.errors import InputError
from cans.learning.arithmetic.arrays import Array
from cans.learning.table import PartitionTable
from cans.simulation.worlds.world import World

TEXT = ("device_type", "network", "point")
NUMBERS = ("bytes", "front_macs", "back_macs", "front_ms", "link_ms", "server_ms")
USUAL = {"front": ("front_macs",), "link": ("bytes",), "server": ("back_macs",)}
"""What explains a segment unless the trace has features of its own for it."""

WORK, MEASURED = ("front_macs", "bytes", "back_macs"), ("front_ms", "link_ms", "server_ms")

Row = dict[str, float]
Key = tuple[str, str, str, str]  # device type, network, point, shape (empty: of one shape)


def read_trace(path: Path) -> dict[Key, list[Row]]:
    """The measured rows, by whose they are; a bad file is an error that says where."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in (*TEXT, *NUMBERS) if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: missing column {', '.join(missing)}")
            own = [name for name in reader.fieldnames or () if is_feature(name)]
            rows: dict[Key, list[Row]] = defaultdict(list)
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                key = row["device_type"], row["network"], row["point"], row.get("shape") or ""
                rows[key].append(_numbers(row, where, (*NUMBERS, *own)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read trace {path}: {error}") from None
    if not rows:
        raise InputError(f"{path}: no measured rows")
    return dict(rows)


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


def _numbers(row: dict[str, str], where: str, names: Sequence[str]) -> Row:
    numbers = {}
    for name in names:
        try:
            numbers[name] = float(row[name])
        except (TypeError, ValueError):
            raise InputError(f"{where}: {name} is not a number: {row[name]!r}") from None
        if not np.isfinite(numbers[name]) or numbers[name] < 0:
            raise InputError(f"{where}: {name} must be finite and not negative: {row[name]}")
    return numbers


def trace_world(path: Path, devices: int) -> World:
    """The world that a trace describes; devices take its (type, network) pairs in turn."""
    rows = read_trace(path)
    points = _ordered_points(rows)
    shapes = {key[3] for key in rows}
    columns = feature_columns(rows)
    nothing = dict.fromkeys((*WORK, *(name for each in columns.values() for name in each)), 0.0)
    features = {
        shape: [_features(rows, point, shape) or nothing for point in points] for shape in shapes
    }

    def size(shape: str) -> list[float]:
        return [max(each[name] for each in features[shape]) for name in WORK]

    by_size = sorted(shapes, key=lambda shape: (size(shape), shape))
    largest = features[by_size[-1]]
    worlds = [
        _world(path, devices, rows, points, shape, _scaled(features[shape], largest, columns))
        for shape in by_size
    ]
    return replace(worlds[-1], sizes=tuple(worlds) if len(worlds) > 1 else ())


def _scaled(
    features: list[Row], largest: list[Row], columns: dict[str, tuple[str, ...]]
) -> dict[str, Array]:
    """The features of each segment, on the scale of those of the largest shape; an exchange has a
    constant besides."""
    table = {}
    for segment, names in columns.items():
        most = [max(each[name] for each in largest) or 1.0 for name in names]
        table[segment] = np.array([[each[name] for name in names] for each in features]) / most
    sent = np.array([each["bytes"] > 0 for each in features])
    table["link"] = np.column_stack([table["link"], sent])
    return table


def _world(
    path: Path,
    devices: int,
    rows: dict[Key, list[Row]],
    points: list[str],
    shape: str,
    features: dict[str, Array],
) -> World:
    """The world of one shape, with the features of every point."""
    types = sorted({key[0] for key in rows})
    networks = sorted({key[1] for key in rows})
    table = PartitionTable(
        path.stem,
        points,
        front=features["front"],
        link=features["link"],
        server=features["server"],
        probe=None,
        digest=f"trace:{path.name}",
        version="trace",
        scaled=True,
    )
    places = sorted({key[:2] for key in rows})
    measured = {key: found for key, found in rows.items() if key[3] == shape}
    most = max(map(len, measured.values()))
    samples = np.zeros((len(places), len(points), most, 3))
    count = np.zeros((len(places), len(points)), dtype=np.int64)
    for (kind, network, point, _), found in measured.items():
        where = places.index((kind, network)), points.index(point)
        count[where] = len(found)
        samples[where][: len(found)] = [
            [row["front_ms"], row["link_ms"], row["server_ms"]] for row in found
        ]
    without = [places[place] for place in np.flatnonzero(~(count > 0).any(axis=1))]
    if without:
        where_not = " on ".join(without[0])
        raise InputError(f"{path}: nothing was measured at shape {shape!r} for {where_not}")
    expected = samples.sum(axis=2) / np.maximum(count, 1)[..., None]
    place_of = np.arange(devices) % len(places)
    return World(
        name="trace",
        table=table,
        types=tuple(types),
        networks=tuple(networks),
        type_of=np.array([types.index(places[place][0]) for place in place_of]),
        network_of=np.array([networks.index(places[place][1]) for place in place_of]),
        place_of=place_of,
        front_ms=expected[..., 0],
        link_ms=expected[..., 1],
        link_fixed_ms=np.zeros(len(points)),
        server_ms=expected[..., 2],
        probe_ms=np.zeros((len(places), 2)),
        allowed=count > 0,
        samples=samples,
        sample_count=count,
    )


def _ordered_points(rows: dict[Key, list[Row]]) -> list[str]:
    """Raw input first, local last: by work on the device, and at equal work by what is sent, at
    the largest shape that each was measured at."""
    work = {
        point: max(
            tuple(found[name] for name in WORK)
            for shape in {key[3] for key in rows}
            if (found := _features(rows, point, shape))
        )
        for point in {key[2] for key in rows}
    }
    points = sorted(work, key=lambda point: (work[point][0], -work[point][1]))
    if len(points) < 2:
        raise InputError("a trace needs at least two partition points")
    if work[points[-1]][1] > 0 or work[points[-1]][2] > 0:
        raise InputError(
            f"the last point of a trace must be local (bytes and back_macs 0), not {points[-1]!r}"
        )
    return points


def _features(rows: dict[Key, list[Row]], point: str, shape: str) -> Row | None:
    """Front MACs, bytes, back MACs and features of the trace's own: properties of the model, the
    same in every row of a shape; None: never measured."""
    found = {
        tuple((name, value) for name, value in row.items() if name not in MEASURED)
        for key, measured in rows.items()
        if key[2:] == (point, shape)
        for row in measured
    }
    if len(found) > 1:
        of = f" of shape {shape!r}" if shape else ""
        raise InputError(f"point {point!r} has rows{of} with different bytes, MACs or features")
    return dict(next(iter(found))) if found else None
