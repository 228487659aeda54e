"""All of the model on this device, beside an answer that the server made.

A device that was slow for a while (another program, heat) sends its raw inputs from then on, and
they do not say that it is well again. So a front-end that was found to have changed, and has had
next to nothing to do since, is run for its own sake: with the lowest priority, in a thread of its
own, at most a twentieth of the time. Nobody waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import nan
from time import monotonic

from cans.errors import CansError
from cans.learning import Choice, Latencies
from cans.live.clock import Clock
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.local import Abandoned, Abandonment
from cans.live.device.options import DeviceOptions
from cans.live.device.round import Job
from cans.live.split import FrontRun, SplitModel
from cans.models.run import background

_REST = 19.0  # times as long as a run took, the device does none
_LOWEST = 19  # priority


class OwnRun:
    """Used by the agent."""

    def __init__(
        self,
        options: DeviceOptions,
        model: SplitModel,
        experience: Experience,
        hooks: Hooks,
        clock: Clock,
        abandonment: Abandonment,
        later: Callable[[Callable[[], None]], None],
        deliver: Callable[[], None],
    ) -> None:
        """`later` leaves something to the agent; `deliver` has uploads sent."""
        self._possible = self.is_possible(options)
        self._model = model
        self._experience = experience
        self._hooks = hooks
        self._clock = clock
        self._abandonment = abandonment
        self._later = later
        self._deliver = deliver
        self._running = False
        self._closed = threading.Event()
        self._next = 0.0
        self.made = 0

    @staticmethod
    def is_possible(options: DeviceOptions) -> bool:
        """Whether this device can and may run all of the model; an early exit would end that."""
        return options.local and options.own_runs and not options.exit

    def offer(self, job: Job, row: int) -> None:
        """After an answer that was made with this choice."""
        if job.inputs and self.wanted(row):
            self._running = True
            background.start(partial(self._run, job), "cans-own-run")

    def wanted(self, row: int) -> bool:
        learner, hooks = self._experience.learner, self._hooks
        if learner is None or not self._possible or self._running or monotonic() < self._next:
            return False
        # What is learned from a recording is not what this machine takes.
        if not hooks.learning or hooks.force is not None or not hooks.told_by_server:
            return False
        learner.trials.begin(self._clock.now())
        return learner.trials.wants_own_run(self._clock.now(), row)

    def close(self) -> None:
        """Give up what runs, between two blocks."""
        self._closed.set()

    # --- in its own thread ---

    def _run(self, job: Job) -> None:
        _give_way()
        front: FrontRun | None = None
        self._abandonment.begin(lambda: self._closed.is_set() or background.ending.is_set())
        try:
            front = self._model.executor.run_front(self._model.last, job.inputs)
        except (CansError, Abandoned):
            pass
        finally:
            self._abandonment.end()
            self._later(partial(self._ran, job, front))

    # --- in the agent's ---

    def _ran(self, job: Job, front: FrontRun | None) -> None:
        self._running = False
        learner = self._experience.learner
        if front is None or learner is None:
            return
        self.made += 1
        self._next = monotonic() + _REST * front.seconds
        if not front.settled:
            return
        self._experience.use_rows(job.rows)
        row, table = learner.table.local, learner.table
        choice = Choice(row, table.point_of[row], table.codec_of[row], nan, nan)
        latencies = Latencies(front.steady_seconds * 1e3, None, None)
        if self._experience.observe_work(choice, latencies, self._clock.now()):
            self._deliver()


def _give_way() -> None:
    """Let everything else on this machine go first. On Linux a thread has a priority of its own;
    elsewhere the whole process would get it."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
