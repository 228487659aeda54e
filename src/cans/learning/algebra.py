"""Small dense linear algebra and the vector of sufficient statistics, for `arithmetic.py`.

The same rules hold as there: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

import numpy as np

from cans.learning.state import Array


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


def accumulate(statistics: Array, plain: Array, slope: Array, latency: float) -> None:
    """Sigma += x x', b += latency x (Alg. 1 line 7)."""
    statistics += plain + latency * slope
    statistics[-3] += latency * latency


def aged(statistics: Array, factor: float) -> Array:
    """The same observations, each worth `factor` of what it was; their number stays exact."""
    result: Array = statistics * factor
    result[-1] = statistics[-1]
    return result


def remaining(elapsed: float, half_life: float) -> float:
    """The share of an observation's worth that is left; time never runs backwards."""
    return float(0.5 ** (max(elapsed, 0.0) / half_life))
