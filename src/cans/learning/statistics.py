"""`SufficientStatistics`: the additive value that everything in CANS is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

import numpy as np

from cans.learning.arithmetic.arrays import SUMS, Array


@dataclass(frozen=True, eq=False)
class SufficientStatistics:
    """All that a set of observations (x, y) says about a linear model: Sigma = Σ x x', b = Σ y x.

    `squares` (Σ y²) gives the noise; `weight` is Σ of the observations' weights, equal to `count`
    until statistics are scaled; `count` is the exact number of observations and never scaled.
    `choices` (5 rows, see `ByChoice`) are the sums of every choice, of parts that may deviate from
    their line; without columns otherwise, or if the sender has none.

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
    choices: Array = field(default_factory=lambda: np.zeros((SUMS, 0)))

    def __post_init__(self) -> None:
        # A copy is taken only of arrays that could change under us.
        sigma, b, choices = (_frozen(each) for each in (self.sigma, self.b, self.choices))
        if sigma.ndim != 2 or b.ndim != 1 or sigma.shape != (b.size, b.size):
            raise ValueError(f"Sigma {sigma.shape} and b {b.shape} do not belong together")
        if self.count < 0:
            raise ValueError(f"a count cannot be negative: {self.count}")
        object.__setattr__(self, "sigma", sigma)
        object.__setattr__(self, "b", b)
        object.__setattr__(self, "choices", choices)

    @classmethod
    def zero(cls, dimension: int) -> SufficientStatistics:
        return cls(np.zeros((dimension, dimension)), np.zeros(dimension))

    @classmethod
    def of(cls, x: object, y: float) -> SufficientStatistics:
        """The statistics of one observation."""
        vector = np.asarray(x, dtype=np.float64)
        return cls(np.outer(vector, vector), y * vector, y * y, 1.0, 1)

    @classmethod
    def unpack(
        cls, vector: Array, dimension: int, choices: Array | None = None
    ) -> SufficientStatistics:
        """From the vector of `arrays.py`, without its padding, and the sums of every choice."""
        width = isqrt(len(vector) - 2)
        sigma = vector[: width * width].reshape(width, width)
        b = vector[width * width : -3]
        squares, weight, count = vector[-3:].tolist()
        kept = slice(dimension)
        sums = np.zeros((SUMS, 0)) if choices is None else choices.copy()
        return cls(sigma[kept, kept].copy(), b[kept].copy(), squares, weight, round(count), sums)

    def pack(self, width: int) -> Array:
        """As the vector of `arrays.py`, padded to `width` features."""
        sigma, b = np.zeros((width, width)), np.zeros(width)
        sigma[: self.dimension, : self.dimension] = self.sigma
        b[: self.dimension] = self.b
        return np.hstack([sigma.ravel(), b, [self.squares, self.weight, self.count]])

    def of_choices(self, count: int) -> Array:
        """(5, count) the sums of every choice; nothing is known of those that it has not."""
        sums = np.zeros((SUMS, count))
        known = min(count, self.choices.shape[1])
        sums[:, :known] = self.choices[:, :known]
        return sums

    @property
    def dimension(self) -> int:
        return self.b.size

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        most = max(self.choices.shape[1], other.choices.shape[1])
        return SufficientStatistics(
            self.sigma + other.sigma,
            self.b + other.b,
            self.squares + other.squares,
            self.weight + other.weight,
            self.count + other.count,
            self.of_choices(most) + other.of_choices(most),
        )

    def __sub__(self, other: SufficientStatistics) -> SufficientStatistics:
        most = max(self.choices.shape[1], other.choices.shape[1])
        return SufficientStatistics(
            self.sigma - other.sigma,
            self.b - other.b,
            self.squares - other.squares,
            self.weight - other.weight,
            self.count - other.count,
            self.of_choices(most) - other.of_choices(most),
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
            self.choices * factor,
        )

    def equals(self, other: SufficientStatistics, tolerance: float = 1e-9) -> bool:
        """Same count exactly, same sums to a relative tolerance."""
        if self.count != other.count or self.dimension != other.dimension:
            return False
        most = max(self.choices.shape[1], other.choices.shape[1])
        pairs = zip(self._sums(most), other._sums(most), strict=True)
        return all(
            bool(np.all(np.abs(a - b) <= tolerance * max(1.0, float(np.abs(a).max(initial=0.0)))))
            for a, b in pairs
        )

    def _sums(self, choices: int) -> tuple[Array, ...]:
        totals = np.array([self.squares]), np.array([self.weight])
        return (self.sigma, self.b, *totals, *self.of_choices(choices))


def _frozen(array: Array) -> Array:
    array = np.asarray(array, dtype=np.float64)
    if array.flags.writeable:
        array = array.copy() if array.base is not None else array
        array.flags.writeable = False
    return array
