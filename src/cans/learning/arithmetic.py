"""The learner's arithmetic, written once.

Every function here takes arrays and gives arrays, in the subset of NumPy that numba compiles, so
the object learner (`device.py`, `edge.py`) calls it as plain NumPy and the simulator's compiled
engine calls the very same functions jitted. No BLAS or LAPACK: they round differently, and need
SciPy under numba. Vector expressions rather than loops: they are fast both ways.

State arrays are indexed by part, then by device (or pool), so that one device is a fleet of one.
Equation and line numbers are those of the paper; `theta` minimises |X theta - y|^2 + ridge
|theta|^2, and a *choice* is a row of the partition table.
"""

from __future__ import annotations

import numpy as np

from cans.learning.state import Array, LearnerState, Statistics

TIE = 1e-9
"""Scores closer than this, relative to the best, are a tie: the lower index wins, and it counts."""


# --- linear algebra ------------------------------------------------------------------------------


def times(matrix: Array, vector: Array) -> Array:
    """matrix @ vector, without BLAS."""
    product: Array = (matrix * vector).sum(axis=1)
    return product


def cholesky(matrix: Array) -> Array:
    """The lower triangle L with L L' = matrix, column by column."""
    size = matrix.shape[0]
    lower = np.zeros((size, size))
    for j in range(size):
        column = matrix[j:, j] - (lower[j:, :j] * lower[j, :j]).sum(axis=1)
        lower[j:, j] = column / np.sqrt(column[0])
    return lower


def log_determinant(lower: Array) -> float:
    """log det of the matrix whose Cholesky factor is `lower`."""
    total = 0.0
    for j in range(lower.shape[0]):
        total += 2.0 * np.log(lower[j, j])
    return total


def inverse_from(lower: Array) -> Array:
    """The inverse of the matrix whose Cholesky factor is `lower`."""
    size = lower.shape[0]
    half = np.zeros((size, size))  # the inverse of `lower`, row by row
    for i in range(size):
        half[i, i] = 1.0
        for j in range(i):
            half[i] -= lower[i, j] * half[j]
        half[i] /= lower[i, i]
    inverse = np.zeros((size, size))
    for i in range(size):
        inverse += half[i].reshape(-1, 1) * half[i]
    return inverse


def with_ridge(sigma: Array, ridge: float) -> Array:
    """Sigma + ridge I. The ridge is never stored: it is added here, when estimating."""
    padded = sigma.copy()
    for j in range(sigma.shape[0]):
        padded[j, j] += ridge
    return padded


# --- sufficient statistics: an additive value ----------------------------------------------------


def add(into: Statistics, other: Statistics, part: int, i: int, j: int) -> None:
    """into[i] += other[j] (Alg. 2 lines 3 and 7)."""
    into.sigma[part, i] += other.sigma[part, j]
    into.b[part, i] += other.b[part, j]
    into.totals[part, i] += other.totals[part, j]


def subtract(into: Statistics, other: Statistics, part: int, i: int, j: int) -> None:
    """into[i] -= other[j]: what was acknowledged leaves the local buffer."""
    into.sigma[part, i] -= other.sigma[part, j]
    into.b[part, i] -= other.b[part, j]
    into.totals[part, i] -= other.totals[part, j]


def copy(into: Statistics, other: Statistics, part: int, i: int, j: int) -> None:
    """into[i] = other[j]."""
    into.sigma[part, i] = other.sigma[part, j]
    into.b[part, i] = other.b[part, j]
    into.totals[part, i] = other.totals[part, j]


def accumulate(into: Statistics, part: int, i: int, x: Array, outer: Array, latency: float) -> None:
    """Sigma += x x', b += latency x (Alg. 1 line 7)."""
    into.sigma[part, i] += outer
    into.b[part, i] += latency * x
    totals = into.totals[part, i]
    totals[0] += latency * latency
    totals[1] += 1.0
    totals[2] += 1.0


# --- select --------------------------------------------------------------------------------------


def optimistic(state: LearnerState, part: int, device: int, weight: float) -> Array:
    """<theta, x> - weight radius |x|_{Sigma^-1} for every choice (Eq. 3, one part of it)."""
    width = state.radius[part, device] * weight
    spread = state.spread[part, device]
    scores: Array = state.mean[part, device] - width * np.sqrt(np.maximum(spread, 0.0))
    return scores


def sampled(state: LearnerState, part: int, device: int, normals: Array) -> Array:
    """<theta~, x> for theta~ ~ N(theta, radius^2 Sigma^-1), from supplied normals (LinTS)."""
    step = times(cholesky(state.inverse[part, device]), normals) * state.radius[part, device]
    scores: Array = state.mean[part, device] + times(state.rows[part], step)
    return scores


def lowest(scores: Array) -> tuple[int, bool]:
    """The index of the lowest score and whether it was a tie; ties take the lower index."""
    best = scores[scores.argmin()]
    close = scores <= best + TIE * abs(best)
    return int(close.argmax()), bool(close.sum() > 1)


def must_not_stay_local(frame: int) -> bool:
    """ANS's forced sampling: every ceil(T^(1/4)) frames, T = 200 doubling as frames pass it."""
    horizon = 200
    while horizon < frame:
        horizon *= 2
    return frame % int(np.ceil(horizon**0.25)) == 0


# --- observe -------------------------------------------------------------------------------------


def observe(state: LearnerState, part: int, device: int, choice: int, latency: float) -> None:
    """Take in one measured latency (Alg. 1 line 7). x = 0 teaches nothing and is passed over."""
    if not state.informative[part, choice]:
        return
    x, outer = state.rows[part, choice], state.outers[part, choice]
    if state.shared[part]:
        state.gain[part, device] += state.spread[part, device, choice]
        accumulate(state.local, part, device, x, outer, latency)
    else:
        accumulate(state.synced, part, device, x, outer, latency)
    if state.uses_local[part]:
        refine(state, part, device, choice, latency)


def refine(state: LearnerState, part: int, device: int, choice: int, latency: float) -> None:
    """Bring inverse, mean and spread up to date for one more observation, exactly.

    Sherman-Morrison, carried through to all choices at once: with u = A^-1 x, c = X u and
    g = 1 / (1 + c_a), mean += c g (y - mean_a), spread -= c^2 g, A^-1 -= g u u'.
    """
    rows, inverse, mean = state.rows[part], state.inverse[part, device], state.mean[part, device]
    u = times(inverse, rows[choice])
    c = times(rows, u)
    g = 1.0 / (1.0 + c[choice])
    mean += c * (g * (latency - mean[choice]))
    state.spread[part, device] -= c * c * g
    inverse -= (g * u).reshape(-1, 1) * u


def growth(state: LearnerState, part: int, device: int) -> float:
    """log det(Sigma + Sigma_loc) - log det(Sigma), both with the ridge (Alg. 1 line 8)."""
    everything = state.synced.sigma[part, device] + state.local.sigma[part, device]
    grown = log_determinant(cholesky(with_ridge(everything, state.ridge)))
    return float(grown - state.log_det[part, device])


def wants_upload(state: LearnerState, part: int, device: int) -> bool:
    """Alg. 1 line 8: has the determinant grown by more than 1 + alpha since the last download?

    `gain` is an upper bound of the growth: each observation adds at most x' Sigma^-1 x to the
    log-determinant. The determinant itself is computed only when the bound passes the threshold,
    and then replaces the bound; so the answer is exact and nearly always free.
    """
    if not state.shared[part] or state.gain[part, device] <= state.threshold:
        return False
    state.gain[part, device] = growth(state, part, device)
    return bool(state.gain[part, device] > state.threshold)


def wants_fleet_sync(state: LearnerState, part: int, device: int, threshold: float) -> bool:
    """DisLinUCB: log det growth times observations since the last synchronisation reaches D."""
    observed = state.local.totals[part, device, 2]
    if state.gain[part, device] * observed < threshold:
        return False
    state.gain[part, device] = growth(state, part, device)
    return bool(state.gain[part, device] * observed >= threshold)


# --- adopt ---------------------------------------------------------------------------------------


def estimate(state: LearnerState, part: int, device: int) -> None:
    """theta = Sigma^-1 b, and from it the mean and spread of every choice (Alg. 1 lines 2, 12)."""
    sigma, b = state.synced.sigma[part, device], state.synced.b[part, device]
    lower = cholesky(with_ridge(sigma, state.ridge))
    state.log_det[part, device] = log_determinant(lower)
    if state.uses_local[part] and state.shared[part]:
        sigma = sigma + state.local.sigma[part, device]
        b = b + state.local.b[part, device]
        lower = cholesky(with_ridge(sigma, state.ridge))
    inverse = inverse_from(lower)
    rows = state.rows[part]
    state.inverse[part, device] = inverse
    state.mean[part, device] = times(rows, times(inverse, b))
    for choice in range(rows.shape[0]):
        x = rows[choice]
        state.spread[part, device, choice] = (times(inverse, x) * x).sum()


def adopt(state: LearnerState, part: int, device: int, pools: Statistics, pool: int) -> None:
    """Use a downloaded pool to estimate from now on (Alg. 2 lines 4-5 and 8-9, Alg. 1 line 12)."""
    copy(state.synced, pools, part, device, pool)
    estimate(state, part, device)
    state.gain[part, device] = 0.0
    if state.local.totals[part, device, 2] > 0.0:  # observed while the upload was under way
        state.gain[part, device] = growth(state, part, device)


# --- a whole exchange, for drivers that hold the fleet and the pools side by side ----------------


def snapshot(state: LearnerState, part: int, device: int) -> None:
    """Remember what an upload carries (Alg. 1 line 9)."""
    copy(state.sent, state.local, part, device, device)


def exchange(state: LearnerState, part: int, device: int, pools: Statistics, pool: int) -> None:
    """The server merges what was sent; the device drops it from its buffer and adopts the pool."""
    add(pools, state.sent, part, pool, device)
    subtract(state.local, state.sent, part, device, device)
    adopt(state, part, device, pools, pool)
