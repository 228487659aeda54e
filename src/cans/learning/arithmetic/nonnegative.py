"""Least squares with coefficients that are not negative, from the normal equations.

Most of the time nothing is negative and nothing happens here. Else the most negative one is held at
zero, and the next, which is quick and mostly right; if not, the active set of Lawson and Hanson
decides. In the subset of NumPy that numba compiles.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.learning.arithmetic.linear import cholesky, inverse_from, squared, times

NEGLIGIBLE = 1e-6
"""Share of what is explained that a coefficient at zero may leave unexplained."""


def pin(theta: Array, root: Array, sigma: Array, b: Array, ridge: float) -> None:
    """Theta >= 0, in place, for the parts in which it is not."""
    size = theta.shape[1]
    lowest = int(theta.argmin())
    while theta[lowest // size, lowest % size] < 0.0:
        part = lowest // size
        full = sigma[part] + ridge * np.eye(size)
        theta[part] = nonnegative_theta(full, b[part], theta[part], squared(root[part]))
        lowest = int(theta.argmin())


def nonnegative_theta(sigma: Array, b: Array, theta: Array, inverse: Array) -> Array:
    """Ridge regression under theta >= 0, from the solution `theta` without that constraint;
    `sigma` has the ridge, and `inverse` is its own.

    Pinning one coefficient after the other to zero is nearly always right; where letting one go
    again would fit better, the exact solution is found.
    """
    theta = pinned(theta, inverse)
    if missed(sigma, b, theta) < 0:
        return theta
    return active_set(sigma, b)


def missed(sigma: Array, b: Array, theta: Array) -> int:
    """The coefficient at zero that would explain most if it were not, or -1 if none would explain a
    share of `NEGLIGIBLE` of what theta does: the condition of Karush, Kuhn and Tucker."""
    slack = np.maximum(b - times(sigma, theta), 0.0)
    explains = np.where(theta > 0.0, 0.0, slack * slack / np.diag(sigma))
    most = int(explains.argmax())
    enough = explains[most] > NEGLIGIBLE * (theta * b).sum() and explains[most] > 0.0
    return most if enough else -1


def active_set(sigma: Array, b: Array) -> Array:
    """Least squares under theta >= 0 by Lawson and Hanson's active sets: coefficients become
    positive one by one, the most explaining first; one that others make negative goes back."""
    size = b.shape[0]
    theta, free = np.zeros(size), np.zeros(size)
    for _ in range(3 * size):
        entering = missed(sigma, b, theta)
        if entering < 0:
            break
        free[entering] = 1.0
        for _ in range(size):
            among = sigma * free * free.reshape(-1, 1)
            for j in range(size):
                among[j, j] += 1.0 - free[j]
            solved = times(inverse_from(cholesky(among)), b * free)
            if (solved >= 0.0).all():
                theta = solved
                break
            below = solved < 0.0
            steps = np.where(below, theta / np.where(below, theta - solved, 1.0), 1.0)
            theta = np.maximum(theta + steps.min() * (solved - theta), 0.0)
            free = np.where(below & (steps <= steps.min()), 0.0, free)
            theta = theta * free
    return theta


def pinned(theta: Array, inverse: Array) -> Array:
    """Pins the most negative coefficient to zero until none is: theta_j = 0 moves the others by
    theta_j A^-1_j / A^-1_jj, so that no system is solved again."""
    size, j = theta.shape[0], theta.argmin()
    columns, shares = np.empty((size, size)), np.empty((size, size))  # of those that are pinned
    for number in range(size):
        if theta[j] >= 0.0:
            return theta
        column = inverse[j]
        for last in range(number):  # row j of the inverse without what is pinned
            column = column - columns[last, j] * shares[last]
        if column[j] <= 0.0:
            break
        theta = theta - column * (theta[j] / column[j])
        theta[j] = 0.0
        pinned_last, j = j, theta.argmin()
        if theta[j] < 0.0:
            columns[number], shares[number] = column, column / column[pinned_last]
    result: Array = np.maximum(theta, 0.0)
    return result
