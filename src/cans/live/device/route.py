"""Which of several servers a device talks to. Pure: what happened and when comes in."""

from __future__ import annotations

from collections.abc import Sequence

from cans.live.device.breaker import BreakerSettings, CircuitBreaker


class Route:
    """One breaker for each server; the device stays with one for as long as that answers.

    A server must have been joined before requests go to it; `to_join` names one when it is time.
    """

    def __init__(self, servers: Sequence[str], settings: BreakerSettings | None = None) -> None:
        self.servers = tuple(servers)
        self._breakers = [CircuitBreaker(settings) for _ in self.servers]
        self._joined: int | None = None
        self._joining: int | None = None

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
        self._joining = None
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

    def leave(self, index: int) -> None:
        """Join it again before anything else goes there: it speaks of another table."""
        if self._joined == index:
            self._joined = None
