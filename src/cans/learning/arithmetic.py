"""The learner's arithmetic, written once.

Every function here takes arrays and gives arrays, in the subset of NumPy that numba compiles, so
the object learner (`device.py`, `edge.py`) calls it as plain NumPy and the simulator's compiled
engine calls the very same functions jitted. No BLAS or LAPACK: they round differently, and need
SciPy under numba. Vector expressions rather than loops: they are fast both ways.

The first axis of every state array is the device (or the pool), so that one device is a fleet of
one. Equation and line numbers are those of the paper; `theta` minimises
|X theta - y|^2 + ridge |theta|^2, and a *choice* is a row of the partition table.
"""

from __future__ import annotations

import numpy as np

from cans.learning.state import Array, IntArray, PartState, Statistics

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


def add(into: Statistics, i: int, other: Statistics, j: int) -> None:
    """into[i] += other[j] (Alg. 2 lines 3 and 7)."""
    into.sigma[i] += other.sigma[j]
    into.b[i] += other.b[j]
    into.totals[i] += other.totals[j]


def subtract(into: Statistics, i: int, other: Statistics, j: int) -> None:
    """into[i] -= other[j]: what was acknowledged leaves the local buffer."""
    into.sigma[i] -= other.sigma[j]
    into.b[i] -= other.b[j]
    into.totals[i] -= other.totals[j]


def copy(into: Statistics, i: int, other: Statistics, j: int) -> None:
    """into[i] = other[j]."""
    into.sigma[i] = other.sigma[j]
    into.b[i] = other.b[j]
    into.totals[i] = other.totals[j]


def accumulate(into: Statistics, i: int, x: Array, outer: Array, latency: float) -> None:
    """Sigma += x x', b += latency x (Alg. 1 line 7)."""
    into.sigma[i] += outer
    into.b[i] += latency * x
    totals = into.totals[i]
    totals[0] += latency * latency
    totals[1] += 1.0
    totals[2] += 1.0


# --- select --------------------------------------------------------------------------------------


def optimistic(part: PartState, device: int, weight: float) -> Array:
    """<theta, x> - weight radius |x|_{Sigma^-1} for every choice (Eq. 3, one part of it)."""
    width = part.radius[device] * weight
    scores: Array = part.mean[device] - width * np.sqrt(np.maximum(part.spread[device], 0.0))
    return scores


def sampled(part: PartState, device: int, normals: Array) -> Array:
    """<theta~, x> for theta~ ~ N(theta, radius^2 Sigma^-1), from supplied normals (LinTS)."""
    step = times(cholesky(part.inverse[device]), normals)
    scores: Array = part.mean[device] + part.radius[device] * times(part.rows, step)
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


def observe(part: PartState, device: int, choice: int, latency: float) -> None:
    """Take in one measured latency (Alg. 1 line 7). x = 0 teaches nothing and is passed over."""
    if not part.informative[choice]:
        return
    x = part.rows[choice]
    if not part.shared:
        accumulate(part.synced, device, x, part.outers[choice], latency)
        refine(part, device, choice, latency)
        return
    part.gain[device] += part.spread[device, choice]
    accumulate(part.local, device, x, part.outers[choice], latency)
    if part.uses_local:
        refine(part, device, choice, latency)


def refine(part: PartState, device: int, choice: int, latency: float) -> None:
    """Bring inverse, mean and spread up to date for one more observation, exactly.

    Sherman-Morrison, carried through to all choices at once: with u = A^-1 x, c = X u and
    g = 1 / (1 + c_a), mean += c g (y - mean_a), spread -= c^2 g, A^-1 -= g u u'.
    """
    inverse = part.inverse[device]
    u = times(inverse, part.rows[choice])
    c = times(part.rows, u)
    g = 1.0 / (1.0 + c[choice])
    part.mean[device] += c * (g * (latency - part.mean[device, choice]))
    part.spread[device] -= c * c * g
    inverse -= (g * u).reshape(-1, 1) * u


def growth(part: PartState, device: int) -> float:
    """log det(Sigma + Sigma_loc) - log det(Sigma), both with the ridge (Alg. 1 line 8)."""
    everything = part.synced.sigma[device] + part.local.sigma[device]
    grown = log_determinant(cholesky(with_ridge(everything, part.ridge)))
    return float(grown - part.log_det[device])


def wants_upload(part: PartState, device: int) -> bool:
    """Alg. 1 line 8: has the determinant grown by more than 1 + alpha since the last download?

    `gain` is an upper bound of the growth: each observation adds at most x' Sigma^-1 x to the
    log-determinant. The determinant itself is computed only when the bound passes the threshold,
    and then replaces the bound; so the answer is exact and nearly always free.
    """
    threshold = part.threshold
    if not part.shared or part.gain[device] <= threshold:
        return False
    part.gain[device] = growth(part, device)
    return bool(part.gain[device] > threshold)


def wants_fleet_sync(part: PartState, device: int, threshold: float) -> bool:
    """DisLinUCB: log det growth times observations since the last synchronisation reaches D."""
    observed = part.local.totals[device, 2]
    if part.gain[device] * observed < threshold:
        return False
    part.gain[device] = growth(part, device)
    return bool(part.gain[device] * observed >= threshold)


# --- adopt ---------------------------------------------------------------------------------------


def estimate(part: PartState, device: int) -> None:
    """theta = Sigma^-1 b, and from it the mean and spread of every choice (Alg. 1 lines 2, 12)."""
    lower = cholesky(with_ridge(part.synced.sigma[device], part.ridge))
    part.log_det[device] = log_determinant(lower)
    b = part.synced.b[device]
    if part.uses_local and part.shared:
        everything = part.synced.sigma[device] + part.local.sigma[device]
        lower = cholesky(with_ridge(everything, part.ridge))
        b = b + part.local.b[device]
    inverse = inverse_from(lower)
    part.inverse[device] = inverse
    theta = times(inverse, b)
    part.mean[device] = times(part.rows, theta)
    for choice in range(part.rows.shape[0]):
        x = part.rows[choice]
        part.spread[device, choice] = (times(inverse, x) * x).sum()


def adopt(part: PartState, device: int, pools: Statistics, pool: int) -> None:
    """Use a downloaded pool to estimate from now on (Alg. 2 lines 4-5 and 8-9, Alg. 1 line 12)."""
    copy(part.synced, device, pools, pool)
    estimate(part, device)
    part.gain[device] = 0.0
    if part.local.totals[device, 2] > 0.0:  # observed while the upload was under way
        part.gain[device] = growth(part, device)


# --- a whole exchange, for drivers that hold the fleet and the pools side by side ----------------


def snapshot(part: PartState, device: int) -> None:
    """Remember what an upload carries (Alg. 1 line 9)."""
    copy(part.sent, device, part.local, device)


def exchange(part: PartState, device: int, pools: Statistics, pool_of: IntArray) -> None:
    """The server merges what was sent; the device drops it from its buffer and adopts the pool."""
    pool = pool_of[device]
    add(pools, pool, part.sent, device)
    subtract(part.local, device, part.sent, device)
    adopt(part, device, pools, pool)
