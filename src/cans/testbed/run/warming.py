"""Halves that are not prepared beforehand are at least run before the first round.

A large model's halves do not fit in memory one by one, so they run as a chain of blocks that is
built when it is first needed, and their first runs are not learned from. Whoever explores most
would pay for that. So every front-end is run on every device and every back-end on every server,
outside of any inference: nothing is learned from it and no policy gains by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np

from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from cans.live.wire.inference import InferHeader, InferRequest, TensorMeta
from cans.live.wire.link import Link
from cans.testbed.run.fleet import ProcessFleet, table_words
from cans.testbed.run.network import Network
from cans.testbed.run.processes import Child

RUNS = 2  # after which the time of a half is typical
AT_ONCE = 4  # devices; they sleep most of the time
SECONDS = 60.0  # for one back-end


def warm_up(fleets: Sequence[ProcessFleet], network: Network, points: int, folder: Path) -> None:
    """All front-ends of all devices, and all back-ends of all servers."""
    servers = Child(network.server_prefix(), _words(fleets), folder / "warming.log")

    def fronts(which: tuple[ProcessFleet, int]) -> None:
        fleet, device = which
        for point in range(1, points):
            fleet.calibrate(device, RUNS, point)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        devices = [(fleet, seat.index) for fleet in fleets for seat in fleet.seats]
        list(pool.map(fronts, devices))
    if servers.process.wait() != 0:
        raise servers.failed("the servers could not be warmed up")


def _words(fleets: Sequence[ProcessFleet]) -> list[str]:
    fleet = fleets[0]
    words = ["testbed", "warm", fleet.model, *(each.address for each in fleets)]
    return [*words, *table_words(fleet.experiment)]


# --- in a process of its own, beside the servers ---


def warm_servers(
    model: str, servers: Sequence[str], codecs: Sequence[str], features: str, points: int | None
) -> None:
    """Ask every server for every back-end, as a device would; it is told of no latency."""
    cutting = Cutting(max_points=points)
    made = split(load_model(model, cutting), cutting, codecs=codecs, features=features)
    random = np.random.default_rng(0)
    for server in servers:
        with closing(Link(server)) as link:
            for row in _one_row_each(made):
                request = InferRequest(_header(made, row), _crossing(made, row, random))
                for _ in range(RUNS):
                    link.infer(request, SECONDS)


def _one_row_each(made: SplitModel) -> list[int]:
    """A choice for every point but the local one; how it travels makes no difference."""
    table = made.table
    return list({table.point_of[row]: row for row in range(table.local)}.values())


def _crossing(made: SplitModel, row: int, random: np.random.Generator) -> list[memoryview]:
    point, codec = made.table.point_of[row], made.table.codec_of[row]
    return [
        memoryview(
            made.codecs[point, codec].encode(
                random.standard_normal(tuple(each.shape)).astype(each.dtype)
            )
        )
        for each in made.points[point].tensors
    ]


def _header(made: SplitModel, row: int) -> InferHeader:
    table = made.table
    point = table.point_of[row]
    metas = tuple(map(TensorMeta.of, made.points[point].tensors))
    return InferHeader(
        "warming", "warming", table.digest, table.version, point, table.codec_of[row], metas
    )
