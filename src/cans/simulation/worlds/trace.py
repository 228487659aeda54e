"""World `trace`: measured inferences played back.

What was never measured for a type is not a choice for it. Where rows carry a shape, each round has
an input of one of the shapes, all as often, and the rows of the learner's table are those of that
shape. Where they carry a round from which they hold, they take the place of all earlier rows of
their device type and network, for the oracle and the measurements alike.

Small exchanges that devices time for their own sake were not measured. What they would take is read
off the links that were: the line through their latencies over the bytes sent.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from cans.errors import InputError
from cans.learning.arithmetic.arrays import Array, IntArray
from cans.learning.table import PROBE_BYTES, PartitionTable
from cans.simulation.worlds.trace_file import (
    MEASURED,
    USUAL,
    WORK,
    Key,
    Row,
    check_explained,
    feature_columns,
    find_trace,
    read_trace,
)
from cans.simulation.worlds.world import Noise, World


def trace_world(path: Path, devices: int) -> World:
    """The world that a trace describes; devices take its (type, network) pairs in turn."""
    path = find_trace(path)
    rows = read_trace(path)
    columns = feature_columns(rows)
    try:
        points = _ordered_points(rows)
        check_explained(rows, columns, points[-1])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    shapes = {key.shape for key in rows}
    nothing = dict.fromkeys((*WORK, *(name for each in columns.values() for name in each)), 0.0)
    features = {
        shape: [_features(rows, point, shape) or nothing for point in points] for shape in shapes
    }

    def size(shape: str) -> list[float]:
        return [max(each[name] for each in features[shape]) for name in WORK]

    by_size = sorted(shapes, key=lambda shape: (size(shape), shape))
    largest = features[by_size[-1]]
    most = max(each["bytes"] for each in largest)
    by_bytes = columns["link"] == USUAL["link"] and most > 0
    probe = np.array([[size / most, 1.0] for size in PROBE_BYTES]) if by_bytes else None
    worlds = [
        _world(
            path, devices, rows, points, shape, _scaled(features[shape], largest, columns), probe
        )
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
    probe: Array | None,
) -> World:
    """The world of one shape, with the features of every point."""
    types = sorted({key.device_type for key in rows})
    networks = sorted({key.network for key in rows})
    table = PartitionTable(
        path.stem,
        points,
        front=features["front"],
        link=features["link"],
        server=features["server"],
        probe=probe,
        digest=f"trace:{path.name}",
        version="trace",
        scaled=True,
    )
    places = sorted({key.place for key in rows})
    starts = sorted({0, *(key.from_round for key in rows)})
    of_shape = {key: found for key, found in rows.items() if key.shape == shape}
    most = max(map(len, of_shape.values()))
    samples = np.zeros((len(starts) * len(places), len(points), most, 3))
    count = np.zeros(samples.shape[:2], dtype=np.int64)
    for number, (start, place) in enumerate(product(starts, places)):
        for point, found in _in_force(path, of_shape, place, start, shape).items():
            where = number, points.index(point)
            count[where] = len(found)
            samples[where][: len(found)] = [[row[name] for name in MEASURED] for row in found]
    expected = samples.sum(axis=2) / np.maximum(count, 1)[..., None]
    timed = np.zeros((len(samples), 2))
    if probe is not None:
        sent = features["link"][:, 0] / probe[0, 0]  # in units of the smallest exchange
        timed = np.array([_line(sent, links) for links in expected[..., 1]])
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
        probe_ms=timed,
        allowed=count > 0,
        noise=Noise.LOGNORMAL,
        noise_level=_scatter(samples[..., 1], count, expected[..., 1]),
        samples=samples,
        sample_count=count,
        starts=tuple(starts),
    )


def _line(sent: Array, milliseconds: Array) -> tuple[float, float]:
    """(per unit sent, fixed) milliseconds of the line through these links that is nearest to them
    as a share of each, neither negative; zeros where nothing was sent."""
    used = milliseconds > 0
    x, y = sent[used] / milliseconds[used], 1.0 / milliseconds[used]
    if not used.any():
        return 0.0, 0.0
    xx, xy, yy = float(x @ x), float(x @ y), float(y @ y)
    determinant = xx * yy - xy * xy
    if determinant > 1e-9 * xx * yy:
        slope = (x.sum() * yy - y.sum() * xy) / determinant
        fixed = (y.sum() * xx - x.sum() * xy) / determinant
        if slope >= 0 and fixed >= 0:
            return float(slope), float(fixed)
    alone = (float(x.sum() / xx) if xx > 0 else 0.0, 0.0), (0.0, float(y.sum() / yy))
    return min(alone, key=lambda each: float(((each[0] * x + each[1] * y - 1.0) ** 2).sum()))


def _scatter(samples: Array, count: IntArray, mean: Array) -> float:
    """How links scatter about their mean, a share of it: the median over places and points that
    were measured more than once; 0 where none was."""
    measured = np.arange(samples.shape[2]) < count[..., None]
    squares = np.where(measured, (samples - mean[..., None]) ** 2, 0.0).sum(axis=2)
    often = (count > 1) & (mean > 0)
    if not often.any():
        return 0.0
    return float(np.median(np.sqrt(squares[often] / (count[often] - 1)) / mean[often]))


def _in_force(
    path: Path, rows: dict[Key, list[Row]], place: tuple[str, str], start: int, shape: str
) -> dict[str, list[Row]]:
    """What was measured at a place for every point: the rows of it that began last."""
    begun = [key.from_round for key in rows if key.place == place and key.from_round <= start]
    if not begun:
        at = f" at shape {shape!r}" if shape else ""
        where = " on ".join(place)
        raise InputError(f"{path}: nothing was measured{at} for {where} in round {start}")
    return {
        key.point: found
        for key, found in rows.items()
        if key.place == place and key.from_round == max(begun)
    }


def _ordered_points(rows: dict[Key, list[Row]]) -> list[str]:
    """Raw input first, local last: by work on the device, and at equal work by what is sent, at
    the largest shape that each was measured at."""
    work = {
        point: max(
            tuple(found[name] for name in WORK)
            for shape in {key.shape for key in rows}
            if (found := _features(rows, point, shape))
        )
        for point in {key.point for key in rows}
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
        if (key.point, key.shape) == (point, shape)
        for row in measured
    }
    if len(found) > 1:
        of = f" of shape {shape!r}" if shape else ""
        raise InputError(f"point {point!r} has rows{of} with different bytes, MACs or features")
    return dict(next(iter(found))) if found else None
