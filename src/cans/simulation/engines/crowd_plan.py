"""The best joint assignment, by a planner that knows every parameter: what a crowd is judged by.

An assignment gives every device one choice for good. Devices ask again after a pause, or all at
once (a barrier); the planner minimises the mean latency, all devices counting alike. It starts from
the assignments that a price on server time brings about and improves one device at a time; devices
of one place are alike, so that few changes have to be tried. For small fleets `exhaustive` tries
everything.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapreplace
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np

from cans.learning.arithmetic.arrays import Array, IntArray
from cans.simulation.worlds.world import World

Cost = Callable[[IntArray], float]
"""(devices,) choices -> mean latency of an inference, milliseconds."""


class Times(NamedTuple):
    """(devices, choices) milliseconds, the last choice being to stay local."""

    alone: Array  # beside the server
    service: Array  # at it
    place_of: IntArray  # (devices,) those of one place are alike

    @property
    def local(self) -> int:
        return int(self.alone.shape[1]) - 1

    def of(self, choices: IntArray) -> tuple[Array, Array]:
        """(devices,) of an assignment."""
        devices = np.arange(len(choices))
        return self.alone[devices, choices], self.service[devices, choices]


def times_of(world: World) -> Times:
    """What a world's devices take, all parameters known."""
    segments = np.array([world.segments_ms(device) for device in range(world.devices)])
    return Times(segments[:, 0] + segments[:, 1], segments[:, 2], world.place_of)


PRICES = (0.0, *np.geomspace(0.01, 1e3, 80).tolist())
SETTLING = 30  # steps until waits and rates agree
ROUNDS = 20  # of improvement, at most; it settles in a few


def thinking(times: Times, think_ms: float, workers: float) -> Cost:
    """The cost where every device pauses for about `think_ms` between two inferences."""

    def cost(choices: IntArray) -> float:
        own, work = times.of(choices)
        return float((own + work + waits_ms(own, work, think_ms, workers)).mean())

    return cost


def waits_ms(alone: Array, service: Array, think_ms: float, workers: float) -> Array:
    """(devices,) mean wait of each device's requests, by approximate mean value analysis.

    A request finds another device's one in service, half done, or waiting, as often as that device
    spends its time so; with several workers it waits only if all are busy (Sakasegawa's exponent).
    """
    waits = np.zeros_like(service)
    if workers == inf or not service.any():
        return waits
    for _ in range(SETTLING):
        rate = 1.0 / (think_ms + alone + waits + service)  # per millisecond
        inside = rate * service * (0.5 * service) + rate * waits * service
        found = inside.sum() - inside
        busy = min(float((rate * service).sum()) / workers, 1.0)
        found = found / workers * busy ** (np.sqrt(2.0 * (workers + 1.0)) - 2.0)
        waits = np.where(service > 0.0, 0.5 * waits + 0.5 * found, 0.0)
    return waits


def barrier(times: Times, workers: float) -> Cost:
    """The cost where all devices ask at the same moment, and again when all are done."""

    def cost(choices: IntArray) -> float:
        own, work = times.of(choices)
        total = float(own[choices == times.local].sum())
        free = [0.0] * (int(workers) if workers < inf else len(choices))
        remote = np.flatnonzero(choices != times.local)
        for device in remote[np.argsort(own[remote], kind="stable")]:
            begins = max(free[0], float(own[device]))
            heapreplace(free, begins + float(work[device]))
            total += begins + float(work[device])
        return total / len(choices)

    return cost


def allocate(times: Times, cost: Cost) -> IntArray:
    """(devices,) the best choices that the planner finds."""
    priced = [(times.alone + (1.0 + price) * times.service).argmin(axis=1) for price in PRICES]
    starts = {tuple(each.tolist()): each for each in priced}
    starts[(times.local,)] = np.full(len(times.alone), times.local)
    worthwhile = np.unique(np.concatenate(list(starts.values())))
    tried = [_improved(times, cost, start, worthwhile) for start in starts.values()]
    return min(tried, key=cost)


def _improved(times: Times, cost: Cost, start: IntArray, worthwhile: IntArray) -> IntArray:
    choices, value = start.copy(), cost(start)
    for _ in range(ROUNDS):
        before = value
        for place, old in {(int(p), int(c)) for p, c in zip(times.place_of, choices, strict=True)}:
            alike = np.flatnonzero((times.place_of == place) & (choices == old))
            for new in worthwhile.tolist():
                if new == old:
                    continue
                count = 1
                while count <= len(alike):  # one, two, four ... of them move together
                    trial = choices.copy()
                    trial[alike[:count]] = new
                    moved = cost(trial)
                    if moved < value * (1 - 1e-9) or (value == inf and moved < inf):
                        choices, value = trial, moved
                        alike = np.flatnonzero((times.place_of == place) & (choices == old))
                        continue
                    count *= 2
        if not value < before * (1 - 1e-6):
            break
    return choices


def exhaustive(times: Times, cost: Cost) -> IntArray:
    """The best of all assignments; for very small fleets and tables."""
    every = product(range(times.local + 1), repeat=len(times.alone))
    return np.array(min(every, key=lambda choices: cost(np.array(choices))))
