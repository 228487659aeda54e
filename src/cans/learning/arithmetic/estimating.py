"""What policy `cans` adds to the paper's estimate: the physics of latency.

Coefficients of latency are times per unit of work, so they are not negative; that alone gives every
choice a floor once any other one is known. The noise is read off the residuals, so that nobody sets
a radius. Devices of a pool may differ by a factor each, their pace.

The rules of `linear.py` hold: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from cans.learning.arithmetic.arrays import ANEW, Array, BoolArray, IntArray, LearnerState
from cans.learning.arithmetic.by_choice.counts import share_of_others
from cans.learning.arithmetic.by_choice.deviations import (
    FLOOR_MS,
    about_averages,
    common_noise,
    differing,
    note_unlike,
    share,
)
from cans.learning.arithmetic.linear import (
    b_of,
    each_combined,
    each_dot,
    each_form,
    each_solution,
    inverse_root,
    learn_rows,
    norms,
    sigma_of,
    times,
)
from cans.learning.arithmetic.nonnegative import nonnegative_theta, pin
from cans.learning.arithmetic.observing import PRIOR_RUNS, PRIOR_SHARE

APART = 1.0
"""The spread of devices that found themselves unlike their pool."""

QUICKEST = 0.05
"""No pace is less: what a device takes, as a share of what its pool does."""

LEAP = 1e4
"""Growth of what is known along a row by one observation beyond which norms are computed anew: a
difference of two numbers so unequal has lost too many digits."""


def estimate_of(pool: Array, ridge: float, inverse: Array) -> Array:
    """Theta of a pool by itself; `inverse` is that of its Sigma with the ridge."""
    b = b_of(pool)
    return nonnegative_theta(sigma_of(pool, ridge), b, times(inverse, b), inverse)


def noise_variance(statistics: Array, theta: Array, sigma: Array, dimension: int) -> float:
    """sigma^2 from the residuals: |y|^2 - 2 theta'b + theta' Sigma theta over the freedom left."""
    misfit = (theta * (times(sigma, theta) - 2.0 * b_of(statistics))).sum()
    return variance_from(statistics[-3], statistics[-2], misfit, dimension)


def variance_from(squares: float, weight: float, misfit: float, dimension: int) -> float:
    """As `noise_variance`, from |y|^2, the worth of it, and theta' Sigma theta - 2 theta'b."""
    if weight <= 0.0:
        return 0.0
    residual = max(squares + misfit, 0.0)
    prior = PRIOR_RUNS * PRIOR_SHARE**2 * squares / weight
    return float((residual + prior) / (max(weight - dimension, 0.0) + PRIOR_RUNS))


def pace(own: Array, theta: Array, variance: float, spread: float) -> float:
    """How many times as long as its pool's average this device takes, shrunk towards 1.

    y = s <theta, x> + noise with s ~ N(1, spread^2): the posterior mean, from the device's own
    statistics. Little evidence leaves s at 1; plenty lets the device speak for itself.
    """
    explained = (theta * times(sigma_of(own, 0.0), theta)).sum()
    return pace_from(explained, (theta * b_of(own)).sum(), variance, spread)


def pace_from(explained: float, agreement: float, variance: float, spread: float) -> float:
    """As `pace`, from theta' Sigma theta and theta'b of the device's own statistics."""
    if variance <= 0.0:
        return 1.0
    belief = 1.0 / (spread * spread)
    pace = (agreement / variance + belief) / (explained / variance + belief)
    return float(max(pace, QUICKEST))


def spread_of_devices(state: LearnerState, device: int, part: int) -> float:
    """How much the devices of a pool differ, as far as this one knows; no less than it does."""
    spread = float(state.physics.spread[part])
    if spread > 0.0 and state.choices.bends[part]:
        own = max(float(state.physics.unlike[device, part, 0]), 0.0)
        spread = max(differing(state, device, part, spread), sqrt(own))
    return max(spread, APART) if spread > 0.0 and state.physics.apart[device, part] else spread


def pace_by_choice(
    state: LearnerState, device: int, part: int, line: Array, variance: float, deviating: float
) -> float:
    """As `pace`, against what others have measured of the same choices and, where they have not,
    against the line, from which a choice deviates by this share of its latency. A line that is off
    at what everybody plays makes every device look slow, and what they tell fast. Who is alone in
    its pool has no pace. How far it is from 1 is noted, to be told with what is observed next."""
    others = share_of_others(state, device, part)
    state.physics.unlike[device, part] = 0.0
    if others == 0.0:
        return 1.0
    choices = state.choices
    own = choices.own[device, part]
    seen = choices.synced[device, part] + choices.local[device, part]
    average = np.where(seen[0] > 0.0, seen[1] / np.where(seen[0] > 0.0, seen[0], 1.0), line)
    squares, freedom = about_averages(seen, average)
    noise, open_ = common_noise(squares, freedom, variance), (FLOOR_MS * deviating) ** 2
    if noise <= 0.0:
        return 1.0
    left = noise / (noise + open_ * np.maximum(seen[0] - own[0], 0.0))
    mean = line + (average - line) * (1.0 - left)
    number = np.where(own[0] > 0.0, own[0], 1.0)
    said = np.where(own[0] > 0.0, others * share(average) / (noise / number + open_ * left), 0.0)
    explained, agreement = (said * mean * mean).sum(), (said * mean * own[1] / number).sum()
    if explained > 0.0:
        note_unlike(state, device, part, agreement / explained, explained)
    return pace_from(explained, agreement, 1.0, spread_of_devices(state, device, part))


def compute_root(state: LearnerState, device: int, part: int) -> None:
    """The root of the inverse of Sigma, and the norm of every choice, from the sums."""
    physics = state.physics
    size = state.dimension[part]  # without the padding, which has nothing to solve
    known = state.synced[device, part] + state.local[device, part]
    root = inverse_root(sigma_of(known, state.ridge)[:size, :size].copy())
    state.norm[device, part] = norms(root, physics.columns[:size, part].copy())
    physics.root[device, part, :size, :size] = root
    physics.updates[device, part] = 0


def update_roots(state: LearnerState, device: int) -> None:
    """Bring the roots, and the norms of all choices, up to date for one row more of each part."""
    physics = state.physics
    latest = physics.latest[device]
    squares = learn_rows(physics.root[device], state.norm[device], latest, physics.columns)
    latest[:] = 0.0
    for part in range(state.rows.shape[0]):
        physics.updates[device, part] += 1
        if squares[part] > LEAP:
            physics.updates[device, part] = ANEW


def estimate_physically(state: LearnerState, device: int) -> None:
    """Theta of what has changed, at the device's pace, and its noise."""
    physics = state.physics
    parts, _, size = state.rows.shape
    square = size * size
    sums = np.empty((2, parts, state.synced.shape[2]))  # all that is known, and the device's own
    sums[0] = state.synced[device] + state.local[device]
    sums[1] = physics.own[device]
    b = sums[:, :, square : square + size]
    root = physics.root[device]
    theta = each_solution(root, b[0])
    sigma = sums[:, :, :square].copy().reshape(2, parts, size, size)
    if physics.nonnegative:
        pin(theta, root, sigma[0], b[0], state.ridge)
    fitted = each_form(sigma, theta)
    agreement = each_dot(b, theta)
    for part in range(parts):
        if not physics.stale[device, part]:
            continue
        misfit = float(fitted[0, part]) - 2.0 * float(agreement[0, part])
        squares, weight = float(sums[0, part, -3]), float(sums[0, part, -2])
        variance = variance_from(squares, weight, misfit, int(state.dimension[part]))
        spread, own_pace = spread_of_devices(state, device, part), 1.0
        if spread > 0.0:
            explained, agreed = float(fitted[1, part]), float(agreement[1, part])
            own_pace = pace_from(explained, agreed, variance, spread)
            physics.pace[device, part] = physics.divisor[device, part] = own_pace
            if state.choices.bends[part]:
                line = times(state.choices.rows[part], theta[part])
                deviating = float(state.choices.suspected[device, part])
                divisor = pace_by_choice(state, device, part, line, variance, deviating)
                physics.divisor[device, part] = divisor
        physics.theta[device, part] = theta[part] * own_pace
        physics.deviation[device, part] = sqrt(variance)
        physics.stale[device, part] = False


def predict(state: LearnerState, device: int) -> None:
    """Mean and lower confidence bound of every choice's latency, in milliseconds, by part."""
    physics = state.physics
    mean = each_combined(physics.columns, physics.theta[device])
    widths = physics.kappa * physics.deviation[device]
    if physics.kappa == 0.0:
        widths = state.radius[device]
    low = mean - widths.reshape(-1, 1) * state.norm[device]
    if physics.nonnegative:
        low, few = np.maximum(low, 0.0), physics.source_count[0]
        floors = highest_floors(low, physics.floor_by_source[:few], physics.sources[:few])
        low = np.maximum(low, floors)
    state.mean[device] = mean
    physics.low[device] = low


def apply_floors(low: Array, floor: Array, viable: BoolArray) -> Array:
    """With theta >= 0, p costs at least min_j x_pj / x_qj of what q costs; of one part or of
    several at once."""
    floors = (floor * (low * viable)[..., None]).max(axis=-2)
    result: Array = np.maximum(low, floors)
    return result


def highest_floors(low: Array, floor: Array, sources: IntArray) -> Array:
    """What `apply_floors` raises to: floors (sources, parts, choices) by a few choices alone."""
    bounds = low.take(sources, axis=1).T[:, :, None]
    floors: Array = np.maximum.reduce(floor * bounds, axis=0)
    return floors
