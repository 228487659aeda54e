"""Arrays that the arithmetic works on: plain named tuples, so that numba sees them too.

Axis 0 is always the device (or the pool). One device's learner is a fleet of one; the simulator's
is the whole fleet. Nothing here computes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Statistics(NamedTuple):
    """Sufficient statistics of several holders: Sigma, b, and (sum y^2, weight, count)."""

    sigma: Array  # (holders, d, d)   sum of x x'
    b: Array  # (holders, d)          sum of y x
    totals: Array  # (holders, 3)     sum of y^2, sum of age weights, number of observations


class PartState(NamedTuple):
    """What each device knows of one part."""

    rows: Array  # (choices, d)             the part's features of every choice
    outers: Array  # (choices, d, d)        x x' of every choice
    informative: BoolArray  # (choices,)    False where x = 0: nothing to learn there
    synced: Statistics  # used to estimate: the last download, or all of one's own
    local: Statistics  # observed, not yet acknowledged by the server
    sent: Statistics  # the share of `local` that is on its way
    inverse: Array  # (devices, d, d)       (ridge I + Sigma)^-1
    mean: Array  # (devices, choices)       <theta, x>
    spread: Array  # (devices, choices)     x' (ridge I + Sigma)^-1 x
    log_det: Array  # (devices,)            log det (ridge I + synced Sigma)
    gain: Array  # (devices,)               upper bound of the growth of log det since then
    radius: Array  # (devices,)             beta of Eq. 3
    ridge: float  # lambda
    threshold: float  # log(1 + alpha)
    shared: bool  # pooled beyond the device: observations are uploaded
    uses_local: bool  # estimates use one's own observations at once, before any download


def empty_statistics(holders: int, dimension: int) -> Statistics:
    """Statistics of nothing, for so many holders."""
    return Statistics(
        np.zeros((holders, dimension, dimension)),
        np.zeros((holders, dimension)),
        np.zeros((holders, 3)),
    )


def new_part_state(
    rows: Array,
    devices: int,
    *,
    ridge: float,
    threshold: float,
    radius: Array | float,
    shared: bool,
    uses_local: bool,
) -> PartState:
    """The state before anything was seen; `estimate` must run once before the first `select`."""
    choices, dimension = rows.shape
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    return PartState(
        rows=rows,
        outers=rows[:, :, None] * rows[:, None, :],
        informative=np.asarray(rows.any(axis=1)),
        synced=empty_statistics(devices, dimension),
        local=empty_statistics(devices, dimension),
        sent=empty_statistics(devices, dimension),
        inverse=np.zeros((devices, dimension, dimension)),
        mean=np.zeros((devices, choices)),
        spread=np.zeros((devices, choices)),
        log_det=np.zeros(devices),
        gain=np.zeros(devices),
        radius=np.broadcast_to(np.asarray(radius, dtype=np.float64), (devices,)).copy(),
        ridge=float(ridge),
        threshold=float(threshold),
        shared=shared,
        uses_local=uses_local,
    )
