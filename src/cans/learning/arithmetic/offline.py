"""What is run before the first inference, by oneself: where least is known of the work's shape.

A device's first two runs are the whole model and the shortest front-end there is. The others are
drawn: the less the runs so far say of a choice, the likelier. So one device that learns alone sees
every kind of work, and many that learn together do not all see the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray

OWN_RUNS = 3
"""Back-ends that a server runs by itself at most: each must be built for it."""

NOISE = 0.1
"""Of a run that is as long as the whole model, a share of its latency."""


def chances(front: Array, ran: Sequence[int], runnable: BoolArray) -> Array:
    """How likely every choice is to be run next, given its features and what was run.

    In proportion to the fourth power of the variance that the runs leave of it: nearly always among
    those of which least is known. Features count as shares of the largest; what is long is noisier,
    and matters more: rows are taken over the root of the latency that they would have if all
    features took alike.

    >>> front = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0]])
    >>> chances(front, [3, 1], front.any(axis=1)).round(2).tolist()
    [0.0, 0.06, 0.89, 0.06]
    """
    most = front.max(axis=0)
    shares = front / np.where(most > 0.0, most, 1.0)
    length = shares.sum(axis=1) / max(np.count_nonzero(most), 1)
    rows = shares / np.sqrt(np.where(length > 0.0, length, 1.0))[:, None]
    sigma = NOISE**2 * np.eye(rows.shape[1]) + rows[ran].T @ rows[ran]
    variance = np.where(runnable, (rows * np.linalg.solve(sigma, rows.T).T).sum(axis=1), 0.0)
    weight = variance**4
    if weight.sum() <= 0.0:  # no features: all are alike
        weight = runnable.astype(float)
    result: Array = weight / weight.sum()
    return result


def offline_choices(front: Array, runnable: Sequence[int], whole: int, draws: Array) -> list[int]:
    """The offline runs of a device, as many as there are draws, which lie between 0 and 1: `whole`,
    the shortest, and then where little is known; all of them `runnable`, which are in order."""
    can_be_run = np.zeros(len(front), dtype=np.bool_)
    can_be_run[runnable] = True
    ran = [whole, runnable[0]]
    for draw in draws[2:]:
        upto = chances(front, ran, can_be_run).cumsum()
        ran.append(int(np.searchsorted(upto, draw * upto[-1], side="right")))
    return ran[: len(draws)]


def own_choices(offered: Sequence[int], offline_runs: int) -> list[int]:
    """What a server runs by itself of the choices it has a back-end for: the longest, the shortest
    and one between, unless nobody is to run anything offline."""
    runs = min(offline_runs, OWN_RUNS, len(offered))
    return [offered[place * (len(offered) - 1) // max(runs - 1, 1)] for place in range(runs)]
