"""The few array expressions that numba compiles badly, as the loops that it compiles well.

NumPy wants few operations on large arrays, numba none that allocate. What is small and in every
round is therefore spelled twice: these functions take the place of those of the same name in
`cans.learning.arithmetic` when the engine is compiled.

They do the same operations in the same order, so that they return the same bits
(`tests/simulation/test_loops.py`): with a condition of 1e12, another order is another upload.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, IntArray
from cans.learning.arithmetic.linear import TIE


def times(matrix: Array, vector: Array) -> Array:
    rows, columns = matrix.shape
    product = np.empty(rows)
    for row in range(rows):
        total = 0.0
        for column in range(columns):
            total += matrix[row, column] * vector[column]
        product[row] = total
    return product


def cholesky(matrix: Array) -> Array:
    size = matrix.shape[0]
    lower = np.zeros((size, size))
    for j in range(size):
        for i in range(j, size):
            total = 0.0
            for k in range(j):
                total += lower[i, k] * lower[j, k]
            lower[i, j] = matrix[i, j] - total
        diagonal = np.sqrt(lower[j, j])
        for i in range(j, size):
            lower[i, j] /= diagonal
    return lower


def squared(half: Array) -> Array:
    size = half.shape[0]
    square = np.zeros((size, size))
    for k in range(size):
        for i in range(size):
            for j in range(size):
                square[i, j] += half[k, i] * half[k, j]
    return square


def triangle_inverse(lower: Array) -> Array:
    size = lower.shape[0]
    inverse = np.zeros((size, size))
    for j in range(size):
        inverse[j, j] = 1.0 / lower[j, j]
        for i in range(j + 1, size):
            total = 0.0
            for k in range(j, i):
                total += lower[i, k] * inverse[k, j]
            inverse[i, j] = -total / lower[i, i]
    return inverse


def inverse_root(matrix: Array) -> Array:
    size = matrix.shape[0]
    both = np.zeros((size, 2 * size))
    for i in range(size):
        both[i, size + i] = 1.0
        for j in range(size):
            both[i, j] = matrix[i, j]
    for j in range(size):
        diagonal = np.sqrt(both[j, j])
        for k in range(2 * size):
            both[j, k] /= diagonal
        for i in range(j + 1, size):
            factor = both[i, j] / diagonal
            for k in range(2 * size):
                both[i, k] -= factor * both[j, k]
    return both[:, size:].copy()


def inverse_from(lower: Array) -> Array:
    return squared(triangle_inverse(lower))


def observation_of(at_zero: Array, per_ms: Array, weight: float, latency: float) -> Array:
    size = at_zero.shape[0]
    observation = np.empty(size)
    for place in range(size - 3):
        observation[place] = weight * at_zero[place] + (weight * latency) * per_ms[place]
    observation[size - 3] = weight * latency * latency
    observation[size - 2] = observation[size - 1] = 1.0
    return observation


def any_exceeds(values: Array, others: Array, times_as_much: float) -> bool:
    for place in range(values.shape[0]):  # noqa: SIM110 (numba compiles no generators in `any`)
        if values[place] > times_as_much * others[place]:
            return True
    return False


def lowest(scores: Array) -> tuple[int, bool]:
    best = scores[scores.argmin()]
    limit, first, close = best + TIE * abs(best), -1, 0
    for choice in range(scores.shape[0]):
        if scores[choice] <= limit:
            close += 1
            if first < 0:
                first = choice
    return max(first, 0), close > 1


def each_solution(roots: Array, vectors: Array) -> Array:
    systems, size, _ = roots.shape
    solution = np.zeros((systems, size))
    for system in range(systems):
        for row in range(size):
            image = 0.0
            for column in range(size):
                image += roots[system, row, column] * vectors[system, column]
            for column in range(size):
                solution[system, column] += roots[system, row, column] * image
    return solution


def each_form(matrices: Array, vectors: Array) -> Array:
    kinds, systems, size, _ = matrices.shape
    form = np.zeros((kinds, systems))
    for kind in range(kinds):
        for system in range(systems):
            for row in range(size):
                product = 0.0
                for column in range(size):
                    product += matrices[kind, system, row, column] * vectors[system, column]
                form[kind, system] += product * vectors[system, row]
    return form


def each_dot(rows: Array, vectors: Array) -> Array:
    kinds, systems, size = rows.shape
    product = np.zeros((kinds, systems))
    for kind in range(kinds):
        for system in range(systems):
            for column in range(size):
                product[kind, system] += rows[kind, system, column] * vectors[system, column]
    return product


def learn_rows(roots: Array, norms: Array, rows: Array, columns: Array) -> Array:
    systems, size, _ = roots.shape
    choices = norms.shape[1]
    squares = np.ones(systems)
    v, u, less = np.empty(size), np.empty(size), np.empty(choices)
    for system in range(systems):
        root, row = roots[system], rows[system]
        u[:] = 0.0
        total = 0.0
        for i in range(size):
            v[i] = 0.0
            for j in range(size):
                v[i] += root[i, j] * row[j]
            total += v[i] * v[i]
            for j in range(size):
                u[j] += root[i, j] * v[i]
        square = 1.0 + total
        length = np.sqrt(square)
        for i in range(size):
            step = v[i] / (length * (length + 1.0))
            for j in range(size):
                root[i, j] -= step * u[j]
        less[:] = 0.0
        for j in range(size):
            for choice in range(choices):
                less[choice] += columns[j, system, choice] * u[j]
        for choice in range(choices):
            norm = norms[system, choice]
            norms[system, choice] = np.sqrt(abs(norm * norm - less[choice] ** 2 / square))
        squares[system] = square
    return squares


def each_combined(columns: Array, vectors: Array) -> Array:
    size, systems, choices = columns.shape
    combined = np.zeros((systems, choices))
    for column in range(size):
        for system in range(systems):
            weight = vectors[system, column]
            for choice in range(choices):
                combined[system, choice] += columns[column, system, choice] * weight
    return combined


def over_parts(values: Array) -> Array:
    parts, choices = values.shape
    total = np.zeros(choices)
    for part in range(parts):
        for choice in range(choices):
            total[choice] += values[part, choice]
    return total


def norms(root: Array, columns: Array) -> Array:
    size, choices = columns.shape
    lengths = np.zeros(choices)
    for row in range(size):
        image = np.zeros(choices)
        for column in range(size):
            for choice in range(choices):
                image[choice] += root[row, column] * columns[column, choice]
        lengths += image * image
    return np.sqrt(lengths)


def pinned(theta: Array, inverse: Array) -> Array:
    size, theta = theta.shape[0], theta.copy()
    columns, shares = np.empty((size, size)), np.empty((size, size))
    for number in range(size):
        j = theta.argmin()
        if theta[j] >= 0.0:
            return theta
        for i in range(size):
            rest = inverse[j, i]
            for last in range(number):
                rest -= columns[last, j] * shares[last, i]
            columns[number, i] = rest
        if columns[number, j] <= 0.0:
            break
        step = theta[j] / columns[number, j]
        for i in range(size):
            theta[i] -= columns[number, i] * step
            shares[number, i] = columns[number, i] / columns[number, j]
        theta[j] = 0.0
    return np.maximum(theta, 0.0)


def apply_floors(low: Array, floor: Array, viable: BoolArray) -> Array:
    parts, choices = low.shape
    result = low.copy()
    for part in range(parts):
        for q in range(choices):
            if viable[q] and low[part, q] > 0.0:
                for p in range(choices):
                    result[part, p] = max(result[part, p], floor[part, q, p] * low[part, q])
    return result


def lowest_ceilings(high: Array, more: Array) -> Array:
    ceilings = np.full(high.shape[0], np.inf)
    for choice in range(high.shape[0]):
        for other in range(high.shape[0]):
            if more[choice, other] > 0.0:
                ceilings[choice] = min(ceilings[choice], high[other])
    return ceilings


def highest_floors(low: Array, floor: Array, sources: IntArray) -> Array:
    parts, choices = low.shape
    floors = np.zeros((parts, choices))
    for number in range(sources.shape[0]):
        for part in range(parts):
            bound = low[part, sources[number]]
            if bound > 0.0:
                for choice in range(choices):
                    least = floor[number, part, choice] * bound
                    floors[part, choice] = max(floors[part, choice], least)
    return floors
