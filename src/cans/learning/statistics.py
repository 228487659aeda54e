"""`SufficientStatistics`: the additive value that everything in CANS is about."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from cans.learning.arithmetic.arrays import Array


@dataclass(frozen=True, eq=False)
class SufficientStatistics:
    """All that a set of observations (x, y) says about a linear model: Sigma = Σ x x', b = Σ y x.

    `squares` (Σ y²) gives the noise; `weight` is Σ of the observations' weights, equal to `count`
    until statistics are scaled; `count` is the exact number of observations and never scaled.

    >>> one = SufficientStatistics.of([1.0, 2.0], 3.0)
    >>> two = one + one
    >>> two.count, two.b.tolist(), (two - one).equals(one)
    (2, [6.0, 12.0], True)
    """

    sigma: Array
    b: Array
    squares: float = 0.0
    weight: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        # A copy is taken only of arrays that could change under us.
        sigma, b = (_frozen(each) for each in (self.sigma, self.b))
        if sigma.ndim != 2 or b.ndim != 1 or sigma.shape != (b.size, b.size):
            raise ValueError(f"Sigma {sigma.shape} and b {b.shape} do not belong together")
        if self.count < 0:
            raise ValueError(f"a count cannot be negative: {self.count}")
        object.__setattr__(self, "sigma", sigma)
        object.__setattr__(self, "b", b)

    @classmethod
    def zero(cls, dimension: int) -> SufficientStatistics:
        return cls(np.zeros((dimension, dimension)), np.zeros(dimension))

    @classmethod
    def of(cls, x: object, y: float) -> SufficientStatistics:
        """The statistics of one observation."""
        vector = np.asarray(x, dtype=np.float64)
        return cls(np.outer(vector, vector), y * vector, y * y, 1.0, 1)

    @classmethod
    def unpack(cls, vector: Array, dimension: int) -> SufficientStatistics:
        """From the vector of `arrays.py`, without its padding."""
        width = isqrt(len(vector) - 2)
        sigma = vector[: width * width].reshape(width, width)
        b = vector[width * width : -3]
        squares, weight, count = vector[-3:].tolist()
        kept = slice(dimension)
        return cls(sigma[kept, kept].copy(), b[kept].copy(), squares, weight, round(count))

    def pack(self, width: int) -> Array:
        """As the vector of `arrays.py`, padded to `width` features."""
        sigma, b = np.zeros((width, width)), np.zeros(width)
        sigma[: self.dimension, : self.dimension] = self.sigma
        b[: self.dimension] = self.b
        return np.hstack([sigma.ravel(), b, [self.squares, self.weight, self.count]])

    @property
    def dimension(self) -> int:
        return self.b.size

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        return SufficientStatistics(
            self.sigma + other.sigma,
            self.b + other.b,
            self.squares + other.squares,
            self.weight + other.weight,
            self.count + other.count,
        )

    def __sub__(self, other: SufficientStatistics) -> SufficientStatistics:
        return SufficientStatistics(
            self.sigma - other.sigma,
            self.b - other.b,
            self.squares - other.squares,
            self.weight - other.weight,
            self.count - other.count,
        )

    def scaled(self, factor: float) -> SufficientStatistics:
        """The same observations, each worth `factor` of what it was; the count stays exact."""
        if factor == 1.0:
            return self
        return SufficientStatistics(
            self.sigma * factor,
            self.b * factor,
            self.squares * factor,
            self.weight * factor,
            self.count,
        )

    def equals(self, other: SufficientStatistics, tolerance: float = 1e-9) -> bool:
        """Same count exactly, same sums to a relative tolerance."""
        if self.count != other.count or self.dimension != other.dimension:
            return False
        pairs = zip(self._sums(), other._sums(), strict=True)
        return all(
            bool(np.all(np.abs(a - b) <= tolerance * max(1.0, float(np.abs(a).max(initial=0.0)))))
            for a, b in pairs
        )

    def _sums(self) -> tuple[Array, ...]:
        return (self.sigma, self.b, np.array([self.squares]), np.array([self.weight]))


def _frozen(array: Array) -> Array:
    array = np.asarray(array, dtype=np.float64)
    if array.flags.writeable:
        array = array.copy() if array.base is not None else array
        array.flags.writeable = False
    return array
