"""What was measured of a round, and who is asked for it.

A `Stopwatch` turns measurements into what is learned. The device's own believes them; a replay
hands out recorded latencies instead, and a test whatever it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from cans.learning import Choice, Latencies
from cans.learning.plausibility import Limits

Offline = Sequence[tuple[int, float]]
"""(choice, front milliseconds) of each partial run before the first round."""


@dataclass(frozen=True)
class Measured:
    """Milliseconds of one round, monotonic clock. None: did not take place, or not typical."""

    front_ms: float | None
    link_ms: float | None
    server_ms: float | None
    total_ms: float

    def latencies(self) -> Latencies:
        return Latencies(self.front_ms, self.link_ms, self.server_ms)


class Stopwatch(Protocol):
    """Says what is to be learned from a round."""

    def latencies(self, choice: Choice, measured: Measured) -> Latencies: ...
    def offline(self, measured: Offline) -> Offline: ...


class Monotonic:
    """Learn what was measured."""

    def latencies(self, choice: Choice, measured: Measured) -> Latencies:
        return measured.latencies()

    def offline(self, measured: Offline) -> Offline:
        return measured


def believable(milliseconds: float | None, limits: Limits) -> bool:
    """Whether a latency may be learned: a number, and one that the server would not refuse (a
    machine that slept in the middle of a request). No limits, as for a replay, are no excuse for
    an infinity."""
    return milliseconds is not None and isfinite(milliseconds) and limits.admits(milliseconds)


def parted(round_trip_ms: float, server_ms: float) -> tuple[float | None, float | None]:
    """Link and server time of a round trip. A server that says it took longer than all of it, or
    less than nothing, is believed in neither."""
    link_ms = round_trip_ms - server_ms
    return (link_ms, server_ms) if link_ms >= 0 and server_ms >= 0 else (None, None)


class LocalTimes:
    """How long this device takes to finish by itself, from what it has seen; for deadlines only."""

    def __init__(self) -> None:
        self._whole: float | None = None  # seconds
        self._rest: dict[int, float] = {}

    def ran_whole(self, seconds: float) -> None:
        self._whole = _smooth(self._whole, seconds)

    def ran_rest(self, point: int, seconds: float) -> None:
        self._rest[point] = _smooth(self._rest.get(point), seconds)

    def rest(self, point: int) -> float:
        """Seconds from a point to the end; at most those of a whole run, 0 if nothing is known."""
        known = self._rest.get(point, self._whole)
        return known if known is not None else 0.0


def _smooth(before: float | None, now: float) -> float:
    # Quick to believe in slowness, slow to forget it: a missed deadline costs more than a wait.
    return now if before is None or now > before else before + 0.1 * (now - before)
