"""Waiting for the server with an eye on the clock: how long, and what nobody waits for any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from time import monotonic, sleep
from typing import NamedTuple

SAFETY = 1.25  # local runs are given so much more than they took before
MARGIN = 0.02  # seconds to put an answer together, and ...
SHARE = 0.05  # ... of the time there is, because a busy machine wakes its threads late
LEAST = 0.001  # seconds that a server is given in any case


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


class Patience(NamedTuple):
    """Seconds from now."""

    until_own: float  # then this device begins to finish by itself
    until_none: float  # then it will have, and an answer is of no use any more

    @classmethod
    def by(cls, deadline: float, rest: float | None) -> Patience:
        """As late as can be, for a device that finishes in `rest` seconds; None: it cannot."""
        left = deadline - monotonic()
        if rest is None:
            return cls(inf, max(left, LEAST))
        begin = max(left - MARGIN - SHARE * left - SAFETY * rest, LEAST)
        return cls(begin, begin + rest)


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
