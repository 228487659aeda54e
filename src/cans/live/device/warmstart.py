"""Offline experience: a few partial runs before the first request (Alg. 1 line 2)."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from cans.learning import DeviceLearner
from cans.live.device.timing import LocalTimes
from cans.live.split import SplitModel
from cans.models.run.inputs import random_inputs

_SETTLING = 3  # runs before the time of a half is typical


def offline_runs(
    model: SplitModel,
    learner: DeviceLearner,
    random: np.random.Generator,
    times: LocalTimes,
    local: bool = True,
) -> list[tuple[int, float]]:
    """(choice, front milliseconds) of n random partial runs, each warmed up first. Policies that
    want it begin with one to the end: what only the last block does is seen nowhere else."""
    if not any(part.warm for part in learner.policy.parts):
        return []
    table = learner.table
    last = model.last if local else model.last - 1
    found: list[tuple[int, float]] = []
    for number in range(learner.hyperparameters.offline_runs):
        whole = number == 0 and learner.policy.offline_whole
        point = last if whole else int(random.integers(1, last + 1))
        inputs = random_inputs(model.inputs, random)
        run = model.executor.run_front(point, inputs)
        for _ in range(_SETTLING):
            if run.settled:
                break
            run = model.executor.run_front(point, inputs)
        found.append((table.point_of.index(point), run.steady_seconds * 1e3))
        if point == model.last:
            times.ran_whole(run.seconds)
    return found


def measure_whole(model: SplitModel, random: np.random.Generator, times: LocalTimes) -> float:
    """Whole runs, so that deadlines know how long this device needs by itself; returns the lower of
    two in milliseconds, which one disturbance does not change."""
    inputs = random_inputs(model.inputs, random)
    model.executor.run_front(model.last, inputs)  # builds what it needs
    seconds = []
    for _ in range(2):
        start = perf_counter()
        model.executor.run_front(model.last, inputs)
        seconds.append(perf_counter() - start)
    times.ran_whole(seconds[-1])
    return 1e3 * min(seconds)
