"""What testbeds and tests may change in a device. Programs that use a device need none of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf

from cans.errors import InputError
from cans.learning.congestion import Load
from cans.live.device.servers.route import BreakerSettings
from cans.live.device.timing import Monotonic, Stopwatch


@dataclass
class Hooks:
    """Held by the device for its whole life: a testbed changes the values while it runs."""

    force: int | None = None  # take this choice, whatever the policy says
    slowdown: float = 1.0  # every block takes so many times its own time
    pace_mbps: float | None = None  # uploads take at least as long as on such a link
    hedge: bool = True  # False: finish here only when the deadline asks for it
    learning: bool = True  # False: choices as they are, nothing is observed, uploaded or adopted
    stopwatch: Stopwatch = field(default_factory=Monotonic)  # says what is learned of a round
    load: Load | None = None  # that a replay counts with, instead of what the server tells
    breaker: BreakerSettings = field(default_factory=BreakerSettings)

    def __post_init__(self) -> None:
        if not self.slowdown >= 1:
            raise InputError("--slowdown must be 1 or more")
        if self.pace_mbps is not None and not self.pace_mbps > 0:
            raise InputError("--pace-mbps must be positive")

    @property
    def hedges(self) -> bool:
        """Whether late replies are hedged: not of a choice that is to be measured as it is."""
        return self.hedge and self.force is None

    def told(self, load: Load | None) -> Load | None:
        """The load to count with, of what the server told: how busy this machine is has nothing to
        do with latencies that were recorded elsewhere."""
        return load if self.told_by_server else self.load

    @property
    def told_by_server(self) -> bool:
        """Whether loads are those of the server, and not of a recording."""
        return isinstance(self.stopwatch, Monotonic)

    @property
    def may_stay(self) -> bool:
        """Whether runs of a device that stays local may wait to be learned from: not where each is
        to be learned before the next, as in simulation, nor where the testbed has its hand in."""
        as_it_is = self.learning and self.force is None and self.slowdown == 1
        return as_it_is and isinstance(self.stopwatch, Monotonic)

    def slow_down(self, thread_seconds: float, wall_seconds: float) -> None:
        """After a block: until K times its own time have passed; waiting for a busy processor
        counts."""
        if self.slowdown > 1:
            time.sleep(max(thread_seconds * self.slowdown - wall_seconds, 0.0))

    def pace(self, size: int, until: float = inf) -> float:
        """Take as long as these bytes would; returns the milliseconds that took."""
        if self.pace_mbps is None:
            return 0.0
        start = time.monotonic()
        seconds = size * 8 / (self.pace_mbps * 1e6)
        time.sleep(max(min(seconds, until - start), 0.0))
        return (time.monotonic() - start) * 1e3
