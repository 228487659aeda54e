"""Estimates of parts whose choices deviate from their line, within what physics allows.

The pieces are in `deviations.py`; here they replace the line's estimate, where it does not fit.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from cans.learning.arithmetic.arrays import Array, LearnerState
from cans.learning.arithmetic.by_choice.barring import note_slow
from cans.learning.arithmetic.by_choice.deviations import (
    LEAST_SPREAD,
    deviations,
    doubt,
    is_due,
    mature,
    noise_of,
    reference_of,
    scattered,
    spread_of,
    suspicion,
    unexplained,
    weighted,
    without_repeats,
)
from cans.learning.arithmetic.by_choice.personal import individualise
from cans.learning.arithmetic.estimating import (
    apply_floors,
    pace_by_choice,
    pace_from,
    spread_of_devices,
)
from cans.learning.arithmetic.linear import inverse_root, norms, squared, times
from cans.learning.arithmetic.nonnegative import nonnegative_theta
from cans.learning.arithmetic.observing import PRIOR_RUNS, PRIOR_SHARE

ALIKE = 1.0 + 1e-9
"""Choices that were seen equally often are known equally well, however that is rounded."""


def look_into_choices(state: LearnerState, device: int) -> None:
    """Whether choices deviate from their lines, now and then, and by how much where they do."""
    choices, known, news = state.choices, mature(state, device, state.young), False
    deviation = state.physics.deviation[device].reshape(-1, 1)
    choices.width[device] = deviation * state.norm[device]
    for part in range(state.rows.shape[0]):
        if choices.bends[part]:
            due = is_due(state, device, part)
            news = news or due
            if due and state.awaited[device, part] == 0.0:  # what surprised is not yet noise
                seen = choices.synced[device, part] + choices.local[device, part]
                variance = state.physics.deviation[device, part] ** 2
                choices.scatter[device, part] = np.sqrt(scattered(seen, variance))
            if not known or young(state, device, part):
                choices.spread[device, part] = 0.0
            elif due or choices.spread[device, part] > 0.0:
                bend(state, device, part, due)
            if known:
                individualise(state, device, part, due)
            else:
                choices.personal[device, part] = 0.0
            if known and due:
                suspected = suspicion(state, device, part)
                choices.suspected[device, part] = max(suspected, LEAST_SPREAD)
    if news:
        note_slow(state, device)


def bend(state: LearnerState, device: int, part: int, due: bool) -> None:
    """Replace the estimate of a part by one in which its choices deviate from the line, unless that
    fits; `due`: how far they deviate is estimated anew."""
    physics, choices, size = state.physics, state.choices, state.dimension[part]
    known = state.synced[device, part] + state.local[device, part]
    rows, seen = choices.rows[part], choices.synced[device, part] + choices.local[device, part]
    columns = rows[:, :size].T.copy()
    theta = physics.theta[device, part] / physics.pace[device, part]
    mean = times(rows, theta)
    level = reference_of(seen, mean)
    sums = weighted(seen, level)
    prior = PRIOR_RUNS * PRIOR_SHARE**2 * known[-3] / known[-2] if known[-2] > 0.0 else 0.0
    noise, variance = noise_of(sums, level, prior)
    root = physics.root[device, part, :size, :size].copy()
    if due:
        certain = norms(root, columns)
        choices.spread[device, part] = spread_of(sums, mean, level, certain, noise, variance)
    spread = choices.spread[device, part]
    if spread <= 0.0:
        return
    theta, root = redrawn(state, part, sums, unexplained(sums, level, spread, noise))
    line = times(rows, theta)
    level = reference_of(seen, line)
    sums = weighted(seen, level)
    left = unexplained(sums, level, spread, noise)
    width = doubt(level, norms(root, columns), left, spread, variance)
    width = np.where(state.informative[part], width, 0.0)
    mean = np.maximum(line + deviations(sums, line, left), 0.0)
    if physics.spread[part] > 0.0:
        own = weighted(choices.own[device, part], level)
        explained, agreement = (own[0] * mean * mean).sum(), (own[1] * mean).sum()
        differ = spread_of_devices(state, device, part)
        physics.pace[device, part] = pace_from(explained, agreement, variance, differ)
        physics.divisor[device, part] = pace_by_choice(state, device, part, line, variance, spread)
    if not choices.largest[0]:
        scale = times(state.rows[part], theta) / np.where(line > 0.0, line, 1.0)
        mean, width = mean * scale, width * scale
    mean = mean * physics.pace[device, part]
    if choices.suspect[part]:  # timed exchanges are judged by the line that they are in
        physics.theta[device, part] = theta * physics.pace[device, part]
        physics.deviation[device, part] = sqrt(variance)
    state.mean[device, part] = mean
    choices.width[device, part] = width
    bound(state, device, part, left)


def redrawn(state: LearnerState, part: int, sums: Array, left: Array) -> tuple[Array, Array]:
    """The line through the averages of the choices, each worth no more than its deviation leaves
    open (`left` is `deviations.unexplained`); and the root of the inverse of its Sigma."""
    size = state.dimension[part]
    rows = state.choices.rows[part]
    sigma, b = without_repeats(rows, sums, left)
    for column in range(size):
        sigma[column, column] += state.ridge
    sigma, b = sigma[:size, :size].copy(), b[:size].copy()
    root = inverse_root(sigma)
    inverse = squared(root)
    theta = np.zeros(rows.shape[1])
    theta[:size] = times(inverse, b)
    if state.physics.nonnegative:
        theta[:size] = nonnegative_theta(sigma, b, theta[:size].copy(), inverse)
    return theta, root


def young(state: LearnerState, device: int, part: int) -> bool:
    """Whether a pool has too few observations to tell a deviation from noise."""
    known = state.synced[device, part, -2]
    return bool(known < state.dimension[part] + state.young)


def bound(state: LearnerState, device: int, part: int, left: Array) -> None:
    """Keep what is expected of the choices of a bent part within what physics allows: what has more
    work in every respect takes no less, by how much less the rest takes is open. So every choice is
    bounded from below by those with less work, and from above by those with more, if they are known
    no worse than it is (`left` is `deviations.unexplained`): what the line says of a choice that
    was never seen does not overrule what was measured of another."""
    physics, width = state.physics, state.choices.width[device, part]
    mean = state.mean[device, part]
    low = np.maximum(mean - physics.kappa * width, 0.0).reshape(1, -1)
    row, column = left.reshape(-1, 1), left.reshape(1, -1)
    more = physics.floor[part] >= 1.0  # [q, p]: p has no less work than q
    above = np.where(more & (column <= ALIKE * row), 1.0, 0.0)  # p bounds q from above ...
    np.fill_diagonal(above, 0.0)  # ... and none itself: what is said of it may be too low
    below = np.where(more & (row <= ALIKE * column), 1.0, 0.0).reshape(1, *more.shape)  # q bounds p
    ceiling = lowest_ceilings(mean + physics.kappa * width, above)
    low = np.minimum(apply_floors(low, below, physics.offered)[0], ceiling)
    physics.low[device, part] = low
    if physics.kappa > 0.0:
        known = np.where(mean > ceiling, (ceiling - low) / physics.kappa, np.inf)
        state.choices.width[device, part] = np.minimum(width, known)
    state.mean[device, part] = np.minimum(np.maximum(mean, low), ceiling)


def lowest_ceilings(high: Array, more: Array) -> Array:
    """The least of the upper bounds of all choices that have no less work: more[q, p] is 1 where p
    has no less than q."""
    ceilings: Array = np.where(more > 0.0, high, np.inf).min(axis=1)
    return ceilings
