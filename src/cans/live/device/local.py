"""Running to the end on this device, or to the first early exit on the way that is sure enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from cans.errors import InputError
from cans.live.device.timing import LocalTimes
from cans.live.split import Array, Arrays, FrontRun, HalfRun, SplitModel


@dataclass(frozen=True)
class LocalRun:
    """What this device ran by itself, in one stretch or from one exit to the next."""

    point: int  # where it ended; the last: all of the model has run
    outputs: dict[str, Array]
    stretches: tuple[HalfRun, ...]
    exit: str = ""  # the one it left at; empty: none was sure, or there was none

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.stretches)

    @property
    def steady_seconds(self) -> float:
        return sum(each.steady_seconds for each in self.stretches)

    @property
    def settled(self) -> bool:
        return all(each.settled for each in self.stretches)


class LocalRuns:
    """Local runs of one model; no work is done twice."""

    def __init__(self, model: SplitModel, exits: Exits, times: LocalTimes) -> None:
        self._model = model
        self._exits = exits
        self._times = times

    @property
    def first_stop(self) -> int:
        """The point that a whole run begins with: the first exit, or the end."""
        return self._exits.points[0] if self._exits.points else self._model.last

    def whole(self, inputs: Arrays) -> LocalRun:
        stop = self.first_stop
        front = self._model.executor.run_front(stop, inputs)
        run = LocalRun(stop, front.outputs, (front,))
        if stop != self._model.last:
            return self.onward(stop, front)
        if not run.exit:
            self._times.ran_whole(run.seconds)
        return run

    def onward(self, point: int, front: FrontRun) -> LocalRun:
        """A whole run whose first stretch, up to a point, has been run."""
        run = self._onward(point, front, (front,))
        if not run.exit:
            self._times.ran_whole(run.seconds)
        return run

    def rest(self, point: int, front: FrontRun) -> LocalRun:
        """What is left after a front-end. An exit that it has passed may be sure already."""
        run = self._onward(point, front, ())
        if not run.exit:
            self._times.ran_rest(point, run.seconds)
        return run

    def _onward(self, point: int, front: FrontRun, before: tuple[HalfRun, ...]) -> LocalRun:
        executor = self._model.executor
        outputs, stretches = dict(front.outputs), [*before]
        while not (sure := self._exits.sure(front.outputs)):
            stop = self._exits.after(point)
            if stop is None:
                back = executor.continue_locally(point, front.crossing)
                outputs |= back.outputs
                return LocalRun(self._model.last, outputs, (*stretches, back))
            front = executor.run_on(point, stop, front.crossing)
            point = stop
            outputs |= front.outputs
            stretches.append(front)
        return LocalRun(point, outputs, tuple(stretches), sure)


class Abandoned(Exception):
    """A run on this device that nobody waits for any more."""


class Abandonment:
    """Lets the run of a thread be given up between two blocks."""

    def __init__(self) -> None:
        self._given_up: dict[int, Callable[[], bool]] = {}

    def begin(self, given_up: Callable[[], bool]) -> None:
        self._given_up[threading.get_ident()] = given_up

    def end(self) -> None:
        self._given_up.pop(threading.get_ident(), None)

    def check(self) -> None:
        given_up = self._given_up.get(threading.get_ident())
        if given_up is not None and given_up():
            raise Abandoned


# --- early exits ---


class Exits:
    """The exits of a model that this device may take."""

    def __init__(self, model: SplitModel, wanted: Sequence[tuple[str, float]]) -> None:
        self._thresholds = dict(wanted)
        if len(self._thresholds) < len(wanted):
            raise InputError("--exit: an output is named twice")
        for name in self._thresholds:
            if name not in model.outputs:
                raise InputError(f"--exit {name}: the model's outputs are {list(model.outputs)}")
        made_at = {name: i for i, point in reversed(list(enumerate(model.points)))
                   for name in point.outputs if name in self._thresholds}  # fmt: skip
        self.points = tuple(sorted({i for i in made_at.values() if i < model.last}))
        """Where a run stops to look: the first points that have each exit's output."""

    def after(self, point: int) -> int | None:
        """Where to look next."""
        return next((each for each in self.points if each > point), None)

    def sure(self, outputs: Mapping[str, Array]) -> str:
        """The exit that is sure enough: its most likely class is likely enough. Empty: none."""
        for name, threshold in self._thresholds.items():
            if name in outputs and confidence(outputs[name]) >= threshold:
                return name
        return ""


def confidence(scores: Array) -> float:
    """The largest probability of a row of scores; of several rows, the least sure one.

    >>> confidence(np.array([[0.1, 0.9]])), round(confidence(np.array([0.0, 3.0])), 3)
    (0.9, 0.953)
    """
    rows = np.asarray(scores, dtype=np.float64).reshape(-1, np.shape(scores)[-1])
    is_probability = (rows >= 0).all() and np.allclose(rows.sum(axis=1), 1.0, atol=1e-3)
    if not is_probability:
        rows = np.exp(rows - rows.max(axis=1, keepdims=True))
        rows /= rows.sum(axis=1, keepdims=True)
    return float(rows.max(axis=1).min())


def parse_exit(text: str) -> tuple[str, float]:
    """`NAME:THRESHOLD`."""
    name, colon, threshold = text.rpartition(":")
    try:
        value = float(threshold)
    except ValueError:
        value = nan
    if not colon or not name or not 0 < value <= 1:
        raise InputError(f"--exit must be NAME:THRESHOLD with a threshold up to 1, not {text!r}")
    return name, value
