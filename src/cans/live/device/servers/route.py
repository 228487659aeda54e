"""Which of several servers a device talks to: when to stop asking one, when to try again.

Pure: what happened and when comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BreakerSettings:
    """How patient a device is."""

    failures: int = 3  # in a row before it stops asking; a lost connection counts for all of them
    first_wait: float = 0.5  # seconds until the first try, doubling with each that fails
    longest_wait: float = 1.0  # a server that is back is found within so long, and a join

    def times(self, factor: float) -> BreakerSettings:
        """So many times as patient."""
        return replace(
            self, first_wait=self.first_wait * factor, longest_wait=self.longest_wait * factor
        )


class CircuitBreaker:
    """Closed: requests may go. Open: none until a probe has succeeded.

    >>> breaker = CircuitBreaker()
    >>> breaker.failed(0.0, lost=True)
    >>> breaker.closed, breaker.may_probe(0.4), breaker.may_probe(0.5)
    (False, False, True)
    >>> breaker.succeeded()
    >>> breaker.closed
    True
    """

    def __init__(self, settings: BreakerSettings | None = None) -> None:
        self._settings = settings or BreakerSettings()
        self._in_a_row = 0
        self._openings = 0  # in a row: how long to wait next
        self._retry_at = 0.0
        self.closed = True

    def may_probe(self, now: float) -> bool:
        return not self.closed and now >= self._retry_at

    @property
    def retry_at(self) -> float:
        """When a probe is due; of no meaning while closed."""
        return self._retry_at

    def failed(self, now: float, lost: bool = False) -> None:
        """A request or a probe failed; `lost`: there was no connection at all."""
        self._in_a_row += 1
        if not self.closed or lost or self._in_a_row >= self._settings.failures:
            wait = self._settings.first_wait * 2.0 ** min(self._openings, 30)
            self._retry_at = now + min(wait, self._settings.longest_wait)
            self._openings += 1
            self.closed = False

    def probed(self) -> None:
        """The server answers again. Requests may go, but the next failure waits longer than the
        last: a server that answers probes and no requests must not be tried at full rate."""
        self.closed = True
        self._in_a_row = max(self._in_a_row - 1, 0)

    def succeeded(self) -> None:
        """A request was answered in time."""
        self.closed = True
        self._in_a_row = 0
        self._openings = 0


class Route:
    """One breaker for each server; the device stays with one for as long as that answers.

    A server must have been joined before requests go to it; `to_join` names one when it is time.
    """

    def __init__(self, servers: Sequence[str], settings: BreakerSettings | None = None) -> None:
        self.servers = tuple(servers)
        self._breakers = [CircuitBreaker(settings) for _ in self.servers]
        self._joined: int | None = None
        self._joining: int | None = None
        self._suspect: int | None = None

    @property
    def usable(self) -> int | None:
        """The server that requests may go to now."""
        return self._joined

    def to_join(self, now: float) -> int | None:
        """A server to join now: none while one is usable or another is being tried."""
        if self._joined is not None or self._joining is not None:
            return None
        for index, breaker in enumerate(self._breakers):
            if breaker.closed or breaker.may_probe(now):
                return index
        return None

    def next_try(self) -> float | None:
        """When `to_join` will have something to say; None: it does not wait for time to pass."""
        if self._joined is not None or self._joining is not None:
            return None
        return min(0.0 if each.closed else each.retry_at for each in self._breakers)

    def joining(self, index: int) -> None:
        self._joining = index

    def joined(self, index: int) -> None:
        self._joining = self._suspect = None
        self._joined = index
        self._breakers[index].probed()

    def join_failed(self, index: int, now: float) -> None:
        self._joining = None
        self._breakers[index].failed(now, lost=True)

    def succeeded(self, index: int) -> None:
        self._breakers[index].succeeded()

    def failed(self, index: int, now: float, lost: bool = False) -> None:
        """A request failed; with too many of them the server is left until it can be joined."""
        self._breakers[index].failed(now, lost)
        if self._joined == index and not self._breakers[index].closed:
            self._joined = None

    def suspect(self, index: int, now: float) -> None:
        """A reply is late by all that is known of it. No request waits for this server until it
        has shown that it is there: by that reply (`replied_late`), or by answering a join."""
        self._breakers[index].failed(now, lost=True)
        if self._joined == index:
            self._joined = None
            self._suspect = index

    def replied_late(self, index: int) -> None:
        """The reply that was waited for has come after all."""
        self._breakers[index].probed()
        if self._suspect == index and self._joined is None and self._joining is None:
            self._joined = index
        self._suspect = None

    def leave(self, index: int) -> None:
        """Join it again before anything else goes there: it speaks of another table."""
        if self._joined == index:
            self._joined = None
