"""Axes of a figure: from values to places, and where the ticks go."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np

from cans.learning.arithmetic.arrays import Array


@dataclass(frozen=True)
class Axis:
    """Maps [low, high] to [start, end], linearly or logarithmically."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def place(self, values: Array | float) -> Array:
        low, high, at = self.low, self.high, np.asarray(values, dtype=float)
        if self.log:
            low, high, at = log10(low), log10(high), np.log10(np.maximum(at, 1e-300))
        share = (at - low) / (high - low or 1.0)
        # far outside is as good as outside: keep the numbers short
        return self.start + np.clip(share, -2.0, 3.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def linear_ticks(low: float, high: float) -> list[float]:
    """About five round values.

    >>> linear_ticks(0, 2500)
    [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0]
    """
    rough = (high - low or 1.0) / 5
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.99)
    return [
        step * number for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    ]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, and 2 and 5 times them where there would be fewer than three.

    >>> log_ticks(3, 2000), log_ticks(8, 60)
    ([10.0, 100.0, 1000.0], [10.0, 20.0, 50.0])
    """
    for factors in ((1,), (1, 2, 5), (1, 2, 3, 4, 6, 8)):
        found = [
            factor * 10.0**power
            for power in range(floor(log10(low)), ceil(log10(high)) + 1)
            for factor in factors
            if low * 0.999 <= factor * 10.0**power <= high * 1.001
        ]
        if len(found) >= 3:
            break
    while len(found) > 6:
        found = found[::2]
    return found


def tick_text(value: float) -> str:
    """Short and readable.

    >>> [tick_text(value) for value in (0.01, 0.5, 20, 2500, 1e6)]
    ['0.01', '0.5', '20', '2,500', '10⁶']
    """
    if value >= 1e5 and log10(value).is_integer():
        return "10" + str(int(log10(value))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"
