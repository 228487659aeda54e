"""Waiting for the server with an eye on the clock, and finishing here when it is time to."""

from __future__ import annotations

import threading
from math import inf
from time import monotonic, sleep

from cans.errors import DeadlineExceeded
from cans.live.execution import Array, Arrays, Executor
from cans.live.timing import LocalTimes

SAFETY = 1.25  # local runs are given so much more than they took before
MARGIN = 0.02  # seconds to put an answer together, and ...
SHARE = 0.05  # ... of the time there is, because a busy machine wakes its threads late
LEAST = 0.001  # seconds that a server is given in any case


class Abandoned(Exception):
    """A run on this device that nobody waits for any more."""


class Abandonment:
    """Lets the run of a thread be given up between two blocks."""

    def __init__(self) -> None:
        self._given_up: dict[int, threading.Event] = {}

    def begin(self, given_up: threading.Event) -> None:
        self._given_up[threading.get_ident()] = given_up

    def end(self) -> None:
        self._given_up.pop(threading.get_ident(), None)

    def check(self) -> None:
        event = self._given_up.get(threading.get_ident())
        if event is not None and event.is_set():
            raise Abandoned


class Fallback:
    """Finishes on this device what the server did not."""

    def __init__(self, executor: Executor, times: LocalTimes, local: bool) -> None:
        self._executor = executor
        self._times = times
        self._local = local

    def patience(self, point: int, deadline: float) -> float:
        """Seconds to wait for the server: as long as this device could still finish in time."""
        left = deadline - monotonic()
        if self._local:
            left -= MARGIN + SHARE * left + SAFETY * self._times.rest(point)
        return max(left, LEAST)

    def finish(self, point: int, crossing: Arrays, deadline: float) -> dict[str, Array]:
        """The rest of the model, here; raises `DeadlineExceeded` rather than come late."""
        run = self._executor.continue_locally(point, crossing)
        self._times.ran_rest(point, run.seconds)
        if monotonic() > deadline:
            raise DeadlineExceeded("this device could not finish in time")
        return run.outputs


class Pace:
    """Testbeds: sending takes as long as on a link of so many megabits per second, at any time."""

    def __init__(self, mbps: float | None = None) -> None:
        self.mbps = mbps

    def wait(self, size: int, until: float = inf) -> float:
        """Take as long as these bytes would; returns the milliseconds that took."""
        if self.mbps is None:
            return 0.0
        start = monotonic()
        seconds = size * 8 / (self.mbps * 1e6)
        sleep(max(min(seconds, until - start), 0.0))
        return (monotonic() - start) * 1e3
