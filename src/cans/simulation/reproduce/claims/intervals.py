"""95 % t-intervals of means and of differences, which every verdict rests on."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from cans.learning.arithmetic.arrays import Array

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def below_zero(self) -> bool:
        return self.high < 0

    @property
    def above_zero(self) -> bool:
        return self.low > 0

    def to_dict(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in self._asdict().items()}


def t_quantile(degrees: float) -> float:
    """The factor of a two-sided 95 % interval.

    >>> t_quantile(2), t_quantile(19), round(t_quantile(1000), 2)
    (4.303, 2.093, 1.96)
    """
    if degrees < 1:
        return float("nan")
    if degrees <= len(_T):
        return _T[int(degrees) - 1]
    return 1.960 + 2.4 / degrees  # within 0.001 beyond thirty


def mean_interval(values: Array) -> Interval:
    """The mean over seeds; with one seed there is no interval, and nothing can be concluded."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, float("-inf"), float("inf"))
    half = t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def paired(first: Array, second: Array) -> Interval:
    """first - second, seed by seed: both met the same rounds, so most of the noise cancels."""
    return mean_interval(np.asarray(first) - np.asarray(second))


def contrast(*terms: tuple[float, Array]) -> Interval:
    """Σ weight × mean of independent samples (Welch): for settings that met different rounds."""
    mean = sum(weight * float(np.mean(values)) for weight, values in terms)
    if min(len(values) for _, values in terms) < 2:
        return Interval(mean, float("-inf"), float("inf"))
    shares = [weight**2 * float(np.var(v, ddof=1)) / len(v) for weight, v in terms]
    total = sum(shares)
    if total == 0:
        return Interval(mean, mean, mean)
    spread = sum(s**2 / (len(v) - 1) for s, (_, v) in zip(shares, terms, strict=True))
    half = t_quantile(total**2 / spread) * sqrt(total)
    return Interval(mean, mean - half, mean + half)


def band(curves: Array) -> tuple[Array, Array, Array]:
    """(mean, low, high) over axis 0 of (seeds, checkpoints) curves."""
    mean = np.mean(curves, axis=0)
    if len(curves) < 2:
        return mean, mean, mean
    half = t_quantile(len(curves) - 1) * np.std(curves, axis=0, ddof=1) / sqrt(len(curves))
    return mean, mean - half, mean + half
