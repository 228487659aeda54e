"""Could these statistics come from honest observations? Asked before they enter a pool; and whether
what two say can both be true, asked of the members of a pool, and of a pool and its member.

One broken or hostile device must not spoil what a fleet has learned. Nothing here can tell a lie
that looks like the truth; it bounds what a lie can do: the sums must be those of so many rows of
the partition table with latencies in the allowed range.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from cans.learning.arithmetic.arrays import MATURE, Array, BoolArray
from cans.learning.arithmetic.by_choice.deviations import DOUBTS, MOST_UNLIKE, PRECISE
from cans.learning.arithmetic.estimating import QUICKEST, noise_variance
from cans.learning.statistics import SufficientStatistics

SLACK = 1e-6
"""Relative rounding that honest sums may show."""


@dataclass(frozen=True)
class Limits:
    """What an honest observation may look like."""

    lowest_ms: float = 0.0  # latency of one observation; -inf: any (a replay with negative noise)
    highest_ms: float = 600_000.0  # ten minutes; inf: any
    most: int = 1_000_000  # observations in one upload

    def admits(self, latency_ms: float) -> bool:
        return self.lowest_ms <= latency_ms <= self.highest_ms


def implausible(
    statistics: SufficientStatistics, rows: Array, limits: Limits | None = None
) -> str | None:
    """Why these statistics cannot be a sum over `rows` (the part's features), or None.

    >>> honest = SufficientStatistics.of([1.0, 0.5], 20.0)
    >>> implausible(honest, np.array([[1.0, 0.5], [0.0, 0.0]]))
    >>> implausible(honest, np.array([[0.1, 0.5], [0.0, 0.0]]))
    'Sigma is larger than the features of the table allow'
    """
    limits = limits or Limits()
    sigma, b, count, weight = statistics.sigma, statistics.b, statistics.count, statistics.weight
    if statistics.dimension != rows.shape[1]:
        return f"dimension {statistics.dimension} instead of {rows.shape[1]}"
    sums = np.concatenate([sigma.ravel(), b, [statistics.squares, weight]])
    if not np.isfinite(sums).all():
        return "not finite"
    if not 0 <= count <= limits.most:
        return f"{count} observations in one upload; at most {limits.most}"
    if not -SLACK <= weight <= count * (1 + SLACK):
        return f"weight {weight:g} of {count} observations"
    if count == 0:
        return None if not sums.any() else "sums of no observations are not zero"
    if not np.allclose(sigma, sigma.T, rtol=SLACK, atol=0.0):
        return "Sigma is not symmetric"
    beyond = _beyond(statistics, rows, weight) or _latency(statistics, limits)
    return beyond or _choices(statistics, limits)


def _beyond(statistics: SufficientStatistics, rows: Array, weight: float) -> str | None:
    """Sigma against the table: its entries are sums of products of non-negative features."""
    sigma = statistics.sigma
    largest = rows.max(axis=0, initial=0.0)
    ceiling = weight * np.outer(largest, largest)
    if (sigma > ceiling * (1 + SLACK) + SLACK * weight).any():
        return "Sigma is larger than the features of the table allow"
    if (sigma < -SLACK * weight).any():
        return "Sigma has negative entries, features have not"
    # [Sigma b; b' squares] is a sum of outer products of (x, y): positive semi-definite. Scaled to
    # a unit diagonal first, so that milliseconds squared do not drown the features.
    whole = np.block([[sigma, statistics.b[:, None]], [statistics.b, statistics.squares]])
    diagonal = np.diagonal(whole)
    if (diagonal < 0).any():
        return "a negative sum of squares"
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    whole = whole / np.outer(scale, scale)
    # An overflow on the way here (inf / inf) is no honest sum either.
    if not np.isfinite(whole).all() or np.linalg.eigvalsh(whole)[0] < -SLACK * len(whole):
        return "not positive semi-definite"
    return None


def _latency(statistics: SufficientStatistics, limits: Limits) -> str | None:
    bound = max(abs(limits.lowest_ms), abs(limits.highest_ms))
    if bound < inf and statistics.squares > statistics.weight * bound * bound * (1 + SLACK):
        return f"latencies beyond {bound:g} ms"
    rounding = SLACK * np.sqrt(statistics.sigma.diagonal() * statistics.squares)
    if limits.lowest_ms >= 0 and (statistics.b < -rounding).any():
        return "negative latencies"
    return None


def _choices(statistics: SufficientStatistics, limits: Limits) -> str | None:
    """The sums of every choice: of observations of the same upload, and what devices tell of their
    pace within what any of them may tell."""
    number, total, squares, unlike, telling = statistics.choices
    slack = SLACK * number
    if not np.isfinite(statistics.choices).all():
        return "sums of choices that are not finite"
    if (number < 0.0).any() or number.sum() > statistics.count * (1 + SLACK):
        return "more observations of choices than there are"
    if (total * total > number * squares * (1 + SLACK) + SLACK * slack).any():
        return "sums of choices that are of no latencies"
    bound = max(abs(limits.lowest_ms), abs(limits.highest_ms)) / QUICKEST  # told over a pace
    if bound < inf and (squares > number * bound * bound * (1 + SLACK)).any():
        return f"latencies of choices beyond {bound:g} ms"
    if limits.lowest_ms >= 0 and (total < -slack).any():
        return "negative latencies of choices"
    if (telling < -slack).any() or (telling > number + slack).any():
        return "more paces than observations"
    least, most = -DOUBTS * PRECISE**2 * telling, MOST_UNLIKE**2 * telling
    if (unlike < least - slack).any() or (unlike > most + slack).any():
        return "paces that no device tells of"
    return None


def least_claimed_ms(statistics: SufficientStatistics, rows: Array) -> float:
    """Milliseconds that so many observations must have taken, about: each at least as long as one
    of the smallest row of its part, at the speed that the sums speak of.

    >>> rows = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> least_claimed_ms(SufficientStatistics.of([2.0, 0.0], 30.0), rows)
    15.0
    """
    information = float(np.trace(statistics.sigma))
    lengths = np.sqrt((rows**2).sum(axis=1))
    if information <= 0.0 or not lengths.any():
        return 0.0
    per_unit = np.sqrt(max(statistics.squares, 0.0) / information)
    return float(statistics.count * per_unit * lengths[lengths > 0].min())


# --- whether two contradict each other ---

TINY = 1e-300
FAR = 2.0
"""Times as long, or as short: more than devices of one group or network differ."""
NOTICEABLE_MS = 1.0
"""Of latencies of a few ms, weighted as `observing.importance` does: less is nothing."""
SURELY = 3.0
"""Standard deviations of a single observation, on average."""


class Opinion(NamedTuple):
    """What one device's sums say, by themselves."""

    theta: Array
    inverse: Array
    variance: float

    @classmethod
    def of(cls, said: SufficientStatistics, ridge: float) -> Opinion:
        regular = said.sigma + ridge * np.eye(said.dimension)
        inverse = np.asarray(np.linalg.inv(regular), dtype=np.float64)
        theta = np.maximum(inverse @ said.b, 0.0)
        packed = said.pack(said.dimension)
        return cls(theta, inverse, noise_variance(packed, theta, said.sigma, said.dimension))

    def contradicts(self, sigma: Array, b: Array, weight: Array) -> BoolArray:
        """Which of these sums, stacked, are far from it where it knows anything: the standardised
        residual of `pooling.surprise`, and how many times as long."""
        direction = sigma @ self.theta
        explained = np.maximum(direction @ self.theta, TINY)
        score = b @ self.theta - explained
        spread = ((direction @ self.inverse) * direction).sum(axis=1) / weight
        noise = np.maximum(self.variance * (explained + spread) * weight, TINY)
        level = 1.0 + score / explained
        apart = (level <= 1.0 / FAR) | (level >= FAR)
        apart &= np.abs(score) > NOTICEABLE_MS * np.sqrt(explained * weight)
        found: BoolArray = apart & (np.abs(score) > SURELY * np.sqrt(noise)) & (explained > TINY)
        return found


def contradicted(pool: SufficientStatistics, own: SufficientStatistics, ridge: float) -> bool:
    """Whether a pool is far from what a device has measured itself, which is enough to tell: one of
    the two, by itself, must surely contradict the other. (A pool of lies and truths is so noisy
    that nothing contradicts it.) A few measurements may all have been disturbed, which makes them
    slower; where they are faster than the pool, they are enough, too."""
    if own.weight < own.dimension or pool.weight <= 0.0:
        return False
    try:
        levels = _level(pool, own, ridge), _level(own, pool, ridge)
        if all(1.0 / FAR < level < FAR for level in levels):  # nearly always
            return False
        if own.weight < own.dimension + MATURE and levels[0] > 1.0 / FAR:
            return False
        of_pool, of_own = Opinion.of(pool, ridge), Opinion.of(own, ridge)
    except np.linalg.LinAlgError:  # sums of which nothing can be made
        return False
    return _contradicts(of_pool, own) or _contradicts(of_own, pool)


def _level(one: SufficientStatistics, other: SufficientStatistics, ridge: float) -> float:
    """How many times as long, on average, the other says that it takes."""
    regular = one.sigma + ridge * np.eye(one.dimension)
    theta = np.maximum(np.linalg.solve(regular, one.b), 0.0)
    return float(other.b @ theta / max(theta @ other.sigma @ theta, TINY))


def _contradicts(opinion: Opinion, said: SufficientStatistics) -> bool:
    found = opinion.contradicts(said.sigma[None], said.b[None], np.array([said.weight]))
    return bool(found[0])
