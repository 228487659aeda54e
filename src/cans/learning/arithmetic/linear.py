"""The linear learner's arithmetic, written once: dense algebra, sufficient statistics, LinUCB.

Every function here takes arrays and gives arrays, in the subset of NumPy that numba compiles, so
the object learner (`device.py`, `edge.py`) calls it as plain NumPy and the simulator's compiled
engine calls the very same functions jitted. No BLAS or LAPACK: they round differently, and need
SciPy under numba. Vector expressions rather than loops: they are fast both ways.

State arrays are indexed by part, then by device (or pool), so that one device is a fleet of one.
Equation and line numbers are those of the paper; `theta` minimises |X theta - y|^2 + ridge
|theta|^2, and a *choice* is a row of the partition table.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from cans.learning.arithmetic.arrays import ANEW, Array, IntArray, LearnerState

TIE = 1e-9
"""Scores closer than this, relative to the best, are a tie: the lower index wins, and it counts."""

# --- small dense linear algebra ------------------------------------------------------------------


@cache
def spread(shape: tuple[int, ...], *axes: int) -> IntArray:
    """For `take`: the place, in an array that lacks these axes, of every element of the shape. To
    spread a small array so takes plain NumPy a third of the time that broadcasting does."""
    lacking = [1 if axis in axes else length for axis, length in enumerate(shape)]
    places = np.arange(np.prod(lacking)).reshape(lacking)
    return np.ascontiguousarray(np.broadcast_to(places, shape))


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


def squared(half: Array) -> Array:
    """half' half."""
    shape = (*half.shape, half.shape[1])
    product = half.take(spread(shape, 2)) * half.take(spread(shape, 1))
    square: Array = np.add.reduce(product, axis=0)
    return square


def inverse_from(lower: Array) -> Array:
    """The inverse of the matrix whose Cholesky factor is `lower`."""
    size = lower.shape[0]
    half = np.zeros((size, size))  # the inverse of `lower`, row by row
    for i in range(size):
        half[i] -= (lower[i, :i].reshape(-1, 1) * half[:i]).sum(axis=0)
        half[i, i] += 1.0
        half[i] /= lower[i, i]
    return squared(half)


def inverse_root(matrix: Array) -> Array:
    """The lower triangle R with R' R = matrix^-1: that is L^-1, where L L' = matrix.

    Gauss elimination of [matrix | I] turns its left half into L' and its right half into L^-1.
    """
    size = matrix.shape[0]
    both = np.zeros((size, 2 * size))
    both[:, :size] = matrix
    for j in range(size):
        both[j, size + j] = 1.0
    for j in range(size):
        diagonal = np.sqrt(both[j, j])
        row = both[j] / diagonal
        both[j] = row
        column = both[j + 1 :, j] / diagonal
        both[j + 1 :] -= column.reshape(-1, 1) * row
    return both[:, size:].copy()


def any_exceeds(values: Array, others: Array, times_as_much: float) -> bool:
    """Whether one of the values is more than so many times the other of its place."""
    return bool(np.count_nonzero(values > times_as_much * others) > 0)


# --- several systems at once ---------------------------------------------------------------------
# The compiled engine has loops in the place of these, which add in the same order (`loops.py`).


@cache
def spread_over_choices(shape: tuple[int, int, int]) -> IntArray:
    """The same for weights (systems, d) of columns (d, systems, choices)."""
    size, systems, _ = shape
    places = np.arange(systems * size).reshape(systems, size).T[:, :, None]
    return np.ascontiguousarray(np.broadcast_to(places, shape))


def each_times(matrices: Array, vectors: Array) -> Array:
    """(systems, n) matrix @ vector of every system."""
    product: Array = np.add.reduce(matrices * vectors.take(spread(matrices.shape, 1)), axis=2)
    return product


def each_turned_times(matrices: Array, vectors: Array) -> Array:
    """(systems, n) matrix' @ vector of every system."""
    product: Array = np.add.reduce(matrices * vectors.take(spread(matrices.shape, 2)), axis=1)
    return product


def each_solution(roots: Array, vectors: Array) -> Array:
    """(systems, n) root' root @ vector of every system."""
    return each_turned_times(roots, each_times(roots, vectors))


def each_form(matrices: Array, vectors: Array) -> Array:
    """(kinds, systems) vector' matrix vector, for matrices of several kinds of every system."""
    product = np.add.reduce(matrices * vectors.take(spread(matrices.shape, 0, 2)), axis=3)
    return each_dot(product, vectors)


def each_dot(rows: Array, vectors: Array) -> Array:
    """(kinds, systems) <row, vector>, for rows of several kinds of every system."""
    product: Array = np.add.reduce(rows * vectors.take(spread(rows.shape, 0)), axis=2)
    return product


def each_combined(columns: Array, vectors: Array) -> Array:
    """(systems, choices) the columns (d, systems, choices) with the weights of every system."""
    weights = vectors.take(spread_over_choices(columns.shape))
    combined: Array = np.add.reduce(columns * weights, axis=0)
    return combined


def learn_rows(roots: Array, norms: Array, rows: Array, columns: Array) -> Array:
    """Bring the root of every system, and the norms of all choices, up to date for one row x more,
    in place; returns n^2 of every system.

    Potter's square root of Sherman-Morrison: with v = R x and u = R' v, R loses t v u', where
    1 / t = n (n + 1) and n^2 = 1 + |v|^2, and norm^2 of a choice z loses <z, u>^2 / n^2. It is as
    precise as computing it anew: the root's condition is the square root of the inverse's.
    """
    v = each_times(roots, rows)
    u = each_turned_times(roots, v)
    squares: Array = 1.0 + np.add.reduce(v * v, axis=1)
    lengths = np.sqrt(squares)
    v /= (lengths * (lengths + 1.0)).take(spread(v.shape, 1))
    roots -= v.take(spread(roots.shape, 2)) * u.take(spread(roots.shape, 1))
    less = each_combined(columns, u)
    norms *= norms
    norms -= less * less / squares.take(spread(norms.shape, 1))
    np.abs(norms, norms)  # below zero only by rounding
    np.sqrt(norms, norms)
    return squares


def over_parts(values: Array) -> Array:
    """The sum of all rows."""
    total: Array = np.add.reduce(values, axis=0)
    return total


def norms(root: Array, columns: Array) -> Array:
    """|root z| of every column z."""
    size = root.shape[0]
    images = (root.reshape(size, size, 1) * columns.reshape(1, size, -1)).sum(axis=1)
    lengths: Array = np.sqrt((images * images).sum(axis=0))
    return lengths


# --- sufficient statistics: an additive value ----------------------------------------------------


def sigma_of(statistics: Array, ridge: float) -> Array:
    """Sigma + ridge I. The ridge is never stored: it is added here, when estimating."""
    dimension = int(np.sqrt(statistics.shape[0] - 2))  # d d + d + 3 lies between d^2 and (d + 1)^2
    sigma = statistics[: dimension * dimension].copy().reshape(dimension, dimension)
    for j in range(dimension):
        sigma[j, j] += ridge
    return sigma


def b_of(statistics: Array) -> Array:
    """b = sum of y x."""
    dimension = int(np.sqrt(statistics.shape[0] - 2))
    b: Array = statistics[dimension * dimension : dimension * dimension + dimension]
    return b


def accumulate(statistics: Array, at_zero: Array, per_ms: Array, latency: float) -> None:
    """Sigma += x x', b += latency x (Alg. 1 line 7)."""
    statistics += at_zero + latency * per_ms
    statistics[-3] += latency * latency


def scaled(statistics: Array, factor: float) -> Array:
    """The same observations, each worth `factor` of what it was; their number stays exact."""
    result: Array = statistics * factor
    result[-1] = statistics[-1]
    return result


# --- select --------------------------------------------------------------------------------------


def optimistic(mean: Array, norm: Array, radius: Array, weight: float) -> Array:
    """Σ over the parts of <theta, x> - weight radius |x|_{Sigma^-1}, for every choice (Eq. 3)."""
    scores: Array = mean[0] - (weight * radius[0]) * norm[0]
    for part in range(1, mean.shape[0]):
        scores = scores + (mean[part] - (weight * radius[part]) * norm[part])
    return scores


def sampled(state: LearnerState, device: int, normals: Array) -> Array:
    """<theta~, x> for theta~ ~ N(theta, radius^2 Sigma^-1), from supplied normals (LinTS)."""
    scores: Array = state.mean[device].sum(axis=0)
    for part in range(state.rows.shape[0]):
        known = state.synced[device, part] + state.local[device, part]
        inverse = inverse_from(cholesky(sigma_of(known, state.ridge)))
        step = times(cholesky(inverse), normals)
        scores += times(state.rows[part], step * state.radius[device, part])
    return scores


def lowest(scores: Array) -> tuple[int, bool]:
    """The index of the lowest score and whether it was a tie; ties take the lower index."""
    best = scores[scores.argmin()]  # five times as fast as min() in plain NumPy
    close = scores <= best + TIE * abs(best)
    return int(close.argmax()), bool(np.count_nonzero(close) > 1)


# --- observe -------------------------------------------------------------------------------------


def observe(state: LearnerState, device: int, part: int, choice: int, latency: float) -> None:
    """Take in one measured latency (Alg. 1 line 7), of a choice that is `informative`."""
    at_zero, per_ms = state.sums_at_zero[part, choice], state.sums_per_ms[part, choice]
    if state.threshold[part] < np.inf:
        state.gain[device, part] += state.norm[device, part, choice] ** 2
    accumulate(state.local[device, part], at_zero, per_ms, latency)
    if state.uses_local[part]:
        refine(state, device, part, choice, latency)


def refine(state: LearnerState, device: int, part: int, choice: int, latency: float) -> None:
    """Bring reach, mean and norm up to date for one more observation, exactly.

    Sherman-Morrison, carried through to all choices at once: with u = A^-1 x_a, c = X u and
    g = 1 / (1 + c_a), mean += c g (y - mean_a), norm^2 -= c^2 g, X A^-1 -= g c u'.
    """
    reach = state.reach[device, part]
    mean, norm = state.mean[device, part], state.norm[device, part]
    u = reach[choice]
    c = times(state.rows[part], u)
    gc = c * (1.0 / (1.0 + c[choice]))
    mean += gc * (latency - mean[choice])
    norm *= norm
    norm -= gc * c
    np.abs(norm, norm)  # below zero only by rounding
    np.sqrt(norm, norm)
    less = gc.reshape(-1, 1) * u
    reach -= less


def growth(state: LearnerState, device: int, part: int) -> float:
    """log det(Sigma + Sigma_loc) - log det(Sigma), both with the ridge (Alg. 1 line 8)."""
    everything = state.synced[device, part] + state.local[device, part]
    grown = log_determinant(cholesky(sigma_of(everything, state.ridge)))
    if state.physics.used:
        base = log_determinant(cholesky(sigma_of(state.synced[device, part], state.ridge)))
        return float(grown - base)
    return float(grown - state.log_det[device, part])


def wants_upload(state: LearnerState, device: int, part: int, patience: float = 1.0) -> bool:
    """Alg. 1 line 8: has the determinant grown by more than 1 + alpha since the last download?
    With less `patience`, by more than that power of it.

    `gain` is an upper bound of the growth: each observation adds at most x' Sigma^-1 x to the
    log-determinant. Only when the bound passes the threshold need anyone ask; then the determinant
    is computed and replaces the bound. So the answer is exact, and nearly always free.
    """
    if state.threshold[part] < 0.0:  # a policy that shares every observation
        return bool(state.local[device, part, -1] > 0.0)
    threshold = patience * state.threshold[part]
    if state.gain[device, part] <= threshold:
        return False
    state.gain[device, part] = growth(state, device, part)
    return bool(state.gain[device, part] > threshold)


def wants_fleet_sync(state: LearnerState, device: int, part: int, threshold: float) -> bool:
    """DisLinUCB: log det growth times observations since the last synchronisation reaches D."""
    observed = state.local[device, part, -1]
    if state.gain[device, part] * observed < threshold:
        return False
    state.gain[device, part] = growth(state, device, part)
    return bool(state.gain[device, part] * observed >= threshold)


# --- adopt ---------------------------------------------------------------------------------------


def estimate(state: LearnerState, device: int, part: int) -> None:
    """theta = Sigma^-1 b, and from it the mean and norm of every choice (Alg. 1 lines 2, 12)."""
    known = state.synced[device, part]
    lower = cholesky(sigma_of(known, state.ridge))
    state.log_det[device, part] = log_determinant(lower)
    if state.uses_local[part]:
        known = known + state.local[device, part]
        lower = cholesky(sigma_of(known, state.ridge))
    inverse = inverse_from(lower)
    rows = state.rows[part]
    state.mean[device, part] = times(rows, times(inverse, b_of(known)))
    for choice in range(rows.shape[0]):
        u = times(inverse, rows[choice])
        state.norm[device, part, choice] = np.sqrt((u * rows[choice]).sum())
        if state.uses_local[part]:
            state.reach[device, part, choice] = u


def adopt(state: LearnerState, device: int, part: int, pool: Array, time: float) -> None:
    """Use a pool, into which the server merged last at `time`, to estimate from now on.

    Alg. 2 lines 4-5 and 8-9, Alg. 1 line 12.
    """
    state.synced[device, part] = pool
    state.heard[device, part] = max(time, state.heard[device, part])
    state.gain[device, part] = 0.0
    if state.physics.used:
        state.physics.stale[device, part] = True
        state.physics.updates[device, part] = ANEW
    else:
        estimate(state, device, part)
    if state.threshold[part] < np.inf and state.local[device, part, -1] > 0.0:
        state.gain[device, part] = growth(state, device, part)  # observed since the upload was made
