"""Which choices can win at all, before anything was measured.

Latency is Σ theta x with theta >= 0, and a server that is no slower than the device per class of
work. Then total = delta · x_front + theta · x_link + a constant that is the same for all choices
(all the work, at the server's speed), with delta, theta >= 0. So a choice can win only if no
mixture of others has less front work of every class *and* sends less.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray
from cans.learning.table import PartitionTable

SLACK = 0.02
"""A choice must be beaten by this share before it is left out: the model is never exact."""


def offered_choices(table: PartitionTable, all_codecs: bool = True) -> BoolArray:
    """All choices, or those with the table's first codec."""
    return np.array([all_codecs or codec == table.codec_of[0] for codec in table.codec_of])


@cache
def viable_choices(table: PartitionTable, all_codecs: bool = True) -> BoolArray:
    """The choices that are best for some possible theta, up to the slack."""
    costs = np.hstack([table.front, table.link])
    keep = offered_choices(table, all_codecs)
    # A choice never beats itself by the slack, so that it may stand among its rivals.
    for beaten in (_dominated, _beaten_by_mixture):
        for choice in np.flatnonzero(keep).tolist():
            keep[choice] = not beaten(costs[keep], costs[choice])
    keep[[0, -1]] = True
    return keep


@cache
def beaten_by(table: PartitionTable) -> BoolArray:
    """[p, q]: whether q is no worse than p in every column and clearly better in one, so that p
    cannot win as long as q may be chosen."""
    costs = np.hstack([table.front, table.link])
    return np.array([_dominating(costs, target) for target in costs])


def _dominated(others: Array, target: Array) -> bool:
    """Is another choice no worse in every column and clearly better in one?"""
    return bool(_dominating(others, target).any())


def _dominating(others: Array, target: Array) -> BoolArray:
    no_worse = (others <= target).all(axis=1)
    better = (others < target * (1 - SLACK)).any(axis=1)
    return np.asarray(no_worse & better)


def _beaten_by_mixture(others: Array, target: Array) -> bool:
    """Is there w >= 0, Σ w = 1, with w · others <= (1 - slack) target in every column?

    Fictitious play of the game in which one side picks a column and the other a choice: its value
    is negative exactly if such a mixture exists. A few hundred rounds decide all but near-ties, and
    a near-tie is kept.
    """
    excess = others - (1 - SLACK) * target  # (choices, columns); the mixture must be <= 0 in each
    excess = excess / np.maximum(np.abs(excess).max(axis=0), 1e-12)
    # Neither is normalised: only the signs of the outcome and the order of the choices matter.
    mixture, weights = np.zeros(len(others)), np.ones(excess.shape[1])
    for _ in range(2000):
        best = int(np.argmin(excess @ weights))
        mixture[best] += 1.0
        if (excess.T @ mixture <= 0.0).all():
            return True
        weights *= np.exp(0.1 * excess[best])
    return False


def floors(rows: Array) -> Array:
    """floor[q, p] = min_j x_pj / x_qj: what p costs at least when q costs one, with theta >= 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(rows[:, None, :] > 0, rows[None, :, :] / rows[:, None, :], np.inf)
    least: Array = ratios.min(axis=2)
    return np.where(np.isfinite(least), least, 0.0)
