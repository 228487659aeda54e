"""Who may wait for a worker. No clock, no threads: the times come in.

A request that would wait behind a full queue, or that could not be done before its deadline, is
refused at once, so that its device answers locally instead of waiting for nothing.
"""

from __future__ import annotations

from collections.abc import Hashable

from cans.errors import Busy

_SMOOTHING = 0.2  # weight of the newest measurement in the expected time of a job


class Admission:
    """Counts jobs and estimates how long a new one would wait."""

    def __init__(self, workers: int, queue: int) -> None:
        self.workers = workers
        self.queue = queue
        self._inside: list[float] = []  # expected ms of every job admitted and not yet finished
        self._expected: dict[Hashable, float] = {}

    @property
    def inside(self) -> int:
        """Jobs that are running or waiting."""
        return len(self._inside)

    def expected_ms(self, kind: Hashable) -> float:
        """How long a job of this kind takes; 0 before the first one."""
        return self._expected.get(kind, 0.0)

    def wait_ms(self) -> float:
        """How long a job admitted now would wait for a worker."""
        if len(self._inside) < self.workers:
            return 0.0
        return sum(self._inside) / self.workers

    def admit(self, kind: Hashable, remaining_ms: float | None) -> float:
        """Take a job in, or raise `Busy`. Returns a ticket to give back with `finished`."""
        if len(self._inside) >= self.workers + self.queue:
            raise Busy(f"{len(self._inside)} requests are waiting or running; answer locally")
        expected = self.expected_ms(kind)
        if remaining_ms is not None:
            needed = self.wait_ms() + expected
            if needed > remaining_ms:
                raise Busy(f"would take {needed:.0f} ms, the deadline is in {remaining_ms:.0f} ms")
        self._inside.append(expected)
        return expected

    def finished(self, kind: Hashable, ticket: float, compute_ms: float | None) -> None:
        """A job has left; None: it was never run."""
        self._inside.remove(ticket)
        if compute_ms is not None:
            before = self._expected.get(kind, compute_ms)
            self._expected[kind] = before + _SMOOTHING * (compute_ms - before)
