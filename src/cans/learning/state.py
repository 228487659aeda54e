"""Arrays that the arithmetic works on: plain named tuples, so that numba sees them too.

Axis 0 is the part, axis 1 the device (or the pool). One device's learner is a fleet of one; the
simulator's is the whole fleet. Parts of fewer features are padded with zero columns to the widest
one: a feature that is always zero learns nothing and changes nothing. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Statistics(NamedTuple):
    """Sufficient statistics of several holders: Sigma, b, and (sum y^2, weight, count)."""

    sigma: Array  # (parts, holders, d, d)   sum of x x'
    b: Array  # (parts, holders, d)          sum of y x
    totals: Array  # (parts, holders, 3)     sum of y^2, sum of age weights, observations


class LearnerState(NamedTuple):
    """What each device knows of each part."""

    rows: Array  # (parts, choices, d)             features of every choice
    outers: Array  # (parts, choices, d, d)        x x' of every choice
    informative: BoolArray  # (parts, choices)     False where x = 0: nothing to learn there
    shared: BoolArray  # (parts,)                  pooled beyond the device: uploads are made
    uses_local: BoolArray  # (parts,)              estimates use own observations at once
    ridge: float  # lambda
    threshold: float  # log(1 + alpha)
    synced: Statistics  # used to estimate: the last download, or all of one's own
    local: Statistics  # observed, not yet acknowledged by the server
    sent: Statistics  # the share of `local` that is on its way
    inverse: Array  # (parts, devices, d, d)       (ridge I + Sigma)^-1
    mean: Array  # (parts, devices, choices)       <theta, x>
    spread: Array  # (parts, devices, choices)     x' (ridge I + Sigma)^-1 x
    log_det: Array  # (parts, devices)             log det (ridge I + synced Sigma)
    gain: Array  # (parts, devices)                upper bound of the growth of log det since then
    radius: Array  # (parts, devices)              beta of Eq. 3


def empty_statistics(parts: int, holders: int, dimension: int) -> Statistics:
    """Statistics of nothing, for so many holders."""
    return Statistics(
        np.zeros((parts, holders, dimension, dimension)),
        np.zeros((parts, holders, dimension)),
        np.zeros((parts, holders, 3)),
    )


def new_state(
    features: Sequence[Array],
    devices: int,
    *,
    shared: Sequence[bool],
    uses_local: Sequence[bool],
    radius: Sequence[Array | float],
    ridge: float,
    threshold: float,
) -> LearnerState:
    """The state before anything was seen; `estimate` must run before the first `select`."""
    rows = padded(features)
    parts, choices, dimension = rows.shape
    radii = np.empty((parts, devices))
    for part in range(parts):
        radii[part] = radius[part]
    return LearnerState(
        rows=rows,
        outers=rows[:, :, :, None] * rows[:, :, None, :],
        informative=np.asarray(rows.any(axis=2)),
        shared=np.array(shared, dtype=np.bool_),
        uses_local=np.array(uses_local, dtype=np.bool_),
        ridge=float(ridge),
        threshold=float(threshold),
        synced=empty_statistics(parts, devices, dimension),
        local=empty_statistics(parts, devices, dimension),
        sent=empty_statistics(parts, devices, dimension),
        inverse=np.zeros((parts, devices, dimension, dimension)),
        mean=np.zeros((parts, devices, choices)),
        spread=np.zeros((parts, devices, choices)),
        log_det=np.zeros((parts, devices)),
        gain=np.zeros((parts, devices)),
        radius=radii,
    )


def padded(features: Sequence[Array]) -> Array:
    """(parts, choices, widest): the features of all parts, zero columns where a part has fewer."""
    widest = max(each.shape[1] for each in features)
    rows = np.zeros((len(features), len(features[0]), widest))
    for part, each in enumerate(features):
        rows[part, :, : each.shape[1]] = each
    return rows
