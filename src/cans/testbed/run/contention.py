"""Devices that all want the same server: each at its own pace, and what the best fixed assignment
of all of them together would be."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from statistics import fmean
from threading import Lock
from typing import Any

import numpy as np

from cans.simulation.engines.crowd_plan import Times, allocate, thinking
from cans.testbed.report.records import SWEEP, Row, latency_ms
from cans.testbed.run.experiment import Experiment
from cans.testbed.run.fleet import ProcessFleet
from cans.testbed.run.layout import ChoiceInfo, DeviceSeat

OnAnswer = Callable[[dict[str, Any], DeviceSeat, int], None]


def jointly_best(
    experiment: Experiment,
    seats: Sequence[DeviceSeat],
    choices: Sequence[ChoiceInfo],
    rows: Sequence[Row],
) -> dict[int, int]:
    """device -> row: the best assignment of all devices together, by a planner that knows what
    every choice took on its kind of device while nobody else asked (the rows of a sweep)."""
    kinds = [_kind(seat.group.type, seat.group.network) for seat in seats]
    places = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    number_of = {(each.point, each.codec): each.row for each in choices[:-1]}
    found: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row["policy"] != SWEEP or row["error"]:
            continue
        number = number_of.get((row["point"], row["codec"]), choices[-1].row)
        service = max((row["server_ms"] or 0.0) - (row["queue_ms"] or 0.0), 0.0)
        kind = _kind(row["device_type"], row["network"])
        found[kind, number].append((latency_ms(row) - service, service))
    means = np.array(
        [
            [tuple(map(fmean, zip(*found[kind, each.row], strict=True))) for each in choices]
            for kind in kinds
        ]
    )
    times = Times(means[..., 0], means[..., 1], np.array([places[kind] for kind in kinds]))
    best = allocate(times, thinking(times, experiment.pause_ms, experiment.workers))
    return {seat.index: int(row) for seat, row in zip(seats, best, strict=True)}


def _kind(device_type: str, network: str) -> str:
    return f"{device_type} on {network}"


class FreeRunning:
    """The turns of one fleet: its devices ask again and again, each after a pause of its own."""

    def __init__(self, experiment: Experiment, fleet: ProcessFleet) -> None:
        self._experiment = experiment
        self._fleet = fleet
        self._rounds = [count() for _ in fleet.seats]
        self._pauses = [
            np.random.default_rng((experiment.seed, 2, seat.index)) for seat in fleet.seats
        ]

    def play(self, inferences: int, record: OnAnswer) -> None:
        """Until the slowest device has made so many; nobody stops before, or the others would find
        an emptier server than they are to share."""
        done, lock = [0] * len(self._fleet.seats), Lock()

        def run(seat: DeviceSeat) -> None:
            while min(done) < inferences:
                time.sleep(1e-3 * self._pauses[seat.index].exponential(self._experiment.pause_ms))
                answer = self._fleet.infer(seat.index)
                with lock:
                    done[seat.index] += 1
                    record(answer, seat, next(self._rounds[seat.index]))

        with ThreadPoolExecutor(len(self._fleet.seats)) as pool:
            for each in [pool.submit(run, seat) for seat in self._fleet.seats]:
                each.result()
