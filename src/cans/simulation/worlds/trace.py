"""World `trace`: measured inferences, one row each, played back.

Repeated rows of one (device type, network, point) are samples to draw from; what was never measured
for a type is not a choice for it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from cans.errors import InputError
from cans.learning.table import PartitionTable
from cans.simulation.worlds.world import World

TEXT = ("device_type", "network", "point")
NUMBERS = ("bytes", "front_macs", "back_macs", "front_ms", "link_ms", "server_ms")

Row = dict[str, float]
Key = tuple[str, str, str]


def read_trace(path: Path) -> dict[Key, list[Row]]:
    """The measured rows by (type, network, point); a bad file is an error that says where."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in (*TEXT, *NUMBERS) if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: missing column {', '.join(missing)}")
            rows: dict[Key, list[Row]] = defaultdict(list)
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                rows[row["device_type"], row["network"], row["point"]].append(_numbers(row, where))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read trace {path}: {error}") from None
    if not rows:
        raise InputError(f"{path}: no measured rows")
    return dict(rows)


def _numbers(row: dict[str, str], where: str) -> Row:
    numbers = {}
    for name in NUMBERS:
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
    types = sorted({key[0] for key in rows})
    networks = sorted({key[1] for key in rows})
    features = np.array([_features(rows, point) for point in points])
    table = PartitionTable(
        path.stem,
        points,
        front=features[:, :1],
        link=np.column_stack([features[:, 1], features[:, 1] > 0]),
        server=features[:, 2:],
        probe=None,
        digest=f"trace:{path.name}",
        version="trace",
    )
    places = sorted({key[:2] for key in rows})
    most = max(map(len, rows.values()))
    samples = np.zeros((len(places), len(points), most, 3))
    count = np.zeros((len(places), len(points)), dtype=np.int64)
    for (kind, network, point), measured in rows.items():
        where = places.index((kind, network)), points.index(point)
        count[where] = len(measured)
        samples[where][: len(measured)] = [
            [row["front_ms"], row["link_ms"], row["server_ms"]] for row in measured
        ]
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
    """Raw input first, local last: by work on the device, and at equal work by what is sent."""
    work = {point: _features(rows, point) for point in {key[2] for key in rows}}
    points = sorted(work, key=lambda point: (work[point][0], -work[point][1]))
    if len(points) < 2:
        raise InputError("a trace needs at least two partition points")
    if work[points[-1]][1] > 0 or work[points[-1]][2] > 0:
        raise InputError(
            f"the last point of a trace must be local (bytes and back_macs 0), not {points[-1]!r}"
        )
    return points


def _features(rows: dict[Key, list[Row]], point: str) -> tuple[float, float, float]:
    """Front MACs, bytes and back MACs: properties of the model, the same in every row."""
    found = {
        (row["front_macs"], row["bytes"], row["back_macs"])
        for key, measured in rows.items()
        if key[2] == point
        for row in measured
    }
    if len(found) > 1:
        raise InputError(f"point {point!r} has rows with different bytes or MACs")
    return next(iter(found))
