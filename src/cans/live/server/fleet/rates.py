"""How many inferences a fleet makes and how long they take, over the last seconds."""

from __future__ import annotations

_KEPT = 32  # seconds


class Rates:
    """Counts and latencies by the second: to add is cheap, however many inferences there are.

    >>> rates = Rates()
    >>> for at in (100.2, 100.9, 101.5):
    ...     rates.add(at, 20.0)
    >>> rates.per_second(102.0, 2), rates.latency_ms(102.0, 20)
    (1.5, 20.0)
    """

    def __init__(self) -> None:
        self._second = [0] * _KEPT
        self._count = [0] * _KEPT
        self._sum_ms = [0.0] * _KEPT

    def add(self, time: float, latency_ms: float) -> None:
        second = int(time)
        place = second % _KEPT
        if self._second[place] != second:
            if second < self._second[place]:
                return  # told long after it happened
            self._second[place], self._count[place], self._sum_ms[place] = second, 0, 0.0
        self._count[place] += 1
        self._sum_ms[place] += latency_ms

    def per_second(self, now: float, window: int = 10) -> float:
        """Over so many whole seconds before this one."""
        return self._sum(now, window, 1)[0] / window

    def latency_ms(self, now: float, window: int = 20) -> float | None:
        """The mean; None: there was no inference."""
        count, total = self._sum(now, window, 0)
        return total / count if count else None

    def _sum(self, now: float, window: int, skip: int) -> tuple[int, float]:
        last = int(now) - skip
        places = [
            place for place, second in enumerate(self._second) if last - window < second <= last
        ]
        return sum(self._count[i] for i in places), sum(self._sum_ms[i] for i in places)
