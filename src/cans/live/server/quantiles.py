"""Quantiles of the last so many values."""

from __future__ import annotations

from collections import deque


class Recent:
    """
    >>> recent = Recent(4)
    >>> for value in (9.0, 1.0, 2.0, 3.0, 4.0):
    ...     recent.add(value)
    >>> recent.quantile(0.5), recent.quantile(1.0)
    (3.0, 4.0)
    """

    def __init__(self, most: int = 10_000) -> None:
        self._values: deque[float] = deque(maxlen=most)

    def add(self, value: float) -> None:
        self._values.append(value)

    def quantile(self, share: float) -> float:
        if not self._values:
            return 0.0
        ordered = sorted(self._values)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
