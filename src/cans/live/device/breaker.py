"""When to stop asking a server that does not answer, and when to try again. Pure: times come in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BreakerSettings:
    """How patient a device is."""

    failures: int = 3  # in a row before it stops asking; a lost connection counts for all of them
    first_wait: float = 0.5  # seconds until the first try, doubling with each that fails
    longest_wait: float = 30.0


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
