"""Running to the end on this device, or to the first early exit on the way that is sure enough."""

from __future__ import annotations

from dataclasses import dataclass

from cans.live.device.exits import Exits
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
            run = self._onward(stop, front, (front,))
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
