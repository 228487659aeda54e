"""What policy `cans` adds to the paper's arithmetic: the physics of latency.

Coefficients of latency are times per unit of work, so they are not negative; that alone gives every
choice a floor once any other one is known. The noise is read off the residuals, so that nobody sets
a radius. Devices of a pool may differ by a factor each. A pool whose predictions are off again and
again, in one direction, has changed and starts anew.

The same rules hold as in `linear.py`: arrays in, arrays out, the subset of NumPy that numba
compiles.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import INSISTENCE, Array, BoolArray, LearnerState
from cans.learning.arithmetic.linear import b_of, cholesky, inverse_from, sigma_of, times

FLOOR_MS = 3.0
"""Schedulers and radios disturb by a few milliseconds; above that, noise is a share of latency."""

PRIOR_RUNS, PRIOR_SHARE = 2.0, 0.3
"""Before residuals speak: noise of three tenths of the latency, worth two observations."""

FAR = 5.0
"""Standardised residual beyond which an observation is of something else than what was expected."""

SURPRISING = 4.0
"""Standardised residual beyond which others should hear of an observation at once."""

FOLLOWED = 3.0
"""... and how many ordinary ones after it they should hear of too: a change lasts."""

CREDIT = 0.005
"""What every observation earns towards telling of one more surprise: who is surprised again and
again is at odds with its pool, and nobody else is near to contradict it."""

SLOWER, FASTER = (6.0, 2.0, 11.0), (4.0, 1.0, 8.0)
"""Clip, drift and alarm level of the cumulative sum of standardised residuals in each direction:
three observations far off sound it, one liar among honest devices never does. A busy machine is
slower for a second or so in all that it is asked, which is no change that would last; it is never
faster."""

RECENT = 3.0
"""Observations of one upload that the drift counts at most."""

APART = 1.0
"""The spread of devices that found themselves unlike their pool."""

TIE_BREAK = 0.01
"""Where the lower confidence bounds cannot tell (both are zero, say), the means do."""

WORTH_TRYING, WELL_KNOWN, TOO_MUCH = 0.1, 0.2, 3.0
"""A choice that was left out is tried if it may save a tenth of the best one's latency, once the
best one is known to a fifth, unless it could cost three times as much."""

MATURE = 5.0
"""Observations beyond one per feature before a pool's predictions are tested."""


# --- observe -------------------------------------------------------------------------------------


def importance(reference: float) -> float:
    """The weight of an observation: noise grows in proportion to latency above a floor."""
    return float(FLOOR_MS**2 / (FLOOR_MS**2 + reference * reference))


def observe_physically(
    state: LearnerState, device: int, part: int, choice: int, latency: float
) -> None:
    """Take in one measured latency of a choice, as `linear.observe` does for the paper's parts."""
    at_zero, per_ms = state.sums_at_zero[part, choice], state.sums_per_ms[part, choice]
    weight = learn(state, device, part, at_zero, per_ms, latency)
    state.gain[device, part] += weight * state.norm[device, part, choice] ** 2


def learn(
    state: LearnerState, device: int, part: int, at_zero: Array, per_ms: Array, latency: float
) -> float:
    """Add an observation to the buffer for the pool, and to what the device keeps of its own;
    returns its weight.

    The pool learns what an average device would have measured: the latency over this one's pace.
    Otherwise fast devices, which choose other points than slow ones, would bend its picture.
    """
    physics = state.physics
    expected, residual = expectation(state, device, part, per_ms, latency)
    # What its noise is judged by is the expected latency, which this noise has not touched; or,
    # where something else has happened, the latency.
    weight = importance(latency if residual > FAR else expected)
    observation = (at_zero + latency * per_ms) * weight
    observation[-3] = observation[-3] + observation[-2] * latency * latency
    observation[-2:] = 1.0
    rarity = deviate(state, device, part, residual)
    remember(state, device, part, observation, residual, rarity, importance(expected) / weight)
    square = state.rows.shape[2] ** 2
    observation[square:-3] /= physics.pace[device, part]
    observation[-3] /= physics.pace[device, part] ** 2
    state.local[device, part] += observation
    credit = min(state.credit[device, part] + CREDIT, INSISTENCE)
    if credit >= 1.0 and abs(rarity) > SURPRISING:
        credit -= 1.0
        state.startling[device, part] += observation
        state.awaited[device, part] = FOLLOWED + 1.0
    elif state.awaited[device, part] > 1.0:
        state.awaited[device, part] -= 1.0
    state.credit[device, part] = credit
    physics.stale[device, part] = True
    return weight


def remember(
    state: LearnerState,
    device: int,
    part: int,
    observation: Array,
    residual: float,
    rarity: float,
    more: float,
) -> None:
    """Keep an observation as the device's own, which its pace follows. When they are off again and
    again in one direction, this device is no longer as it was: its pace starts anew, further from
    its pool if need be, whatever the pool makes of it.

    By the expected latency an observation counts for `more` times as much as for the pool; what is
    far off for no more than what is just believable (Huber).
    """
    physics = state.physics
    if physics.watched[part] and alarmed(physics.alarm[device, part], rarity, 1.0):
        physics.alarm[device, part] = 0.0
        physics.own[device, part] = 0.0
        physics.apart[device, part] = True
    worth = min(1.0, FAR / max(residual, FAR))
    kept = observation * (more * worth)
    kept[-2], kept[-1] = worth, 1.0
    physics.own[device, part] += kept


def alarmed(alarm: Array, residual: float, observations: float) -> bool:
    """Page's cumulative sums, one per direction; true when either passes the alarm level.

    The drift is per observation. Of many that come together most are from before what sounds the
    alarm now, and do not speak against it.
    """
    recent = min(max(observations, 1.0), RECENT)
    alarm[0] = max(alarm[0] + min(residual, SLOWER[0]) - SLOWER[1] * recent, 0.0)
    alarm[1] = max(alarm[1] + min(-residual, FASTER[0]) - FASTER[1] * recent, 0.0)
    return bool(alarm[0] > SLOWER[2] or alarm[1] > FASTER[2])


def deviate(state: LearnerState, device: int, part: int, residual: float) -> float:
    """A standardised residual as the normal deviate that is about as rare: the noise itself is
    known from so many observations only, the one that is about to be added included (Student)."""
    known = state.synced[device, part, -2] + state.local[device, part, -2] + 1.0
    freedom = max(known - state.dimension[part], 0.0) + PRIOR_RUNS
    return float(np.sign(residual) * np.sqrt(freedom * np.log(1.0 + residual**2 / freedom)))


def expectation(
    state: LearnerState, device: int, part: int, per_ms: Array, latency: float
) -> tuple[float, float]:
    """The latency that was expected, in ms, and the standardised residual of the measured one;
    the latency itself and 0 where nothing is expected yet."""
    deviation = state.physics.deviation[device, part]
    young = state.synced[device, part, -2] < state.dimension[part] + MATURE
    if young or deviation <= 0.0:  # zero: it has not estimated anything yet
        return abs(latency), 0.0
    square = state.rows.shape[2] ** 2
    expected = (per_ms[square:-3] * state.physics.theta[device, part]).sum()
    scale = np.sqrt(importance(expected)) / deviation
    return expected, (latency - expected) * scale


# --- estimate ------------------------------------------------------------------------------------


def nonnegative_theta(inverse: Array, b: Array) -> Array:
    """Ridge regression under theta >= 0: pins the most negative coefficient to zero until none is.

    Pinning theta_j moves the others by theta_j A^-1_j / A^-1_jj; no system is solved again.
    """
    theta = times(inverse, b)
    free = inverse.copy()
    for _ in range(theta.shape[0]):
        j = theta.argmin()
        if theta[j] >= 0.0 or free[j, j] <= 0.0:
            break
        column = free[j].copy()
        theta -= column * (theta[j] / column[j])
        free -= column.reshape(-1, 1) * (column / column[j])
        theta[j] = 0.0
    result: Array = np.maximum(theta, 0.0)
    return result


def noise_variance(statistics: Array, theta: Array, sigma: Array, dimension: int) -> float:
    """sigma^2 from the residuals: |y|^2 - 2 theta'b + theta' Sigma theta over the freedom left."""
    squares, weight = statistics[-3], statistics[-2]
    if weight <= 0.0:
        return 0.0
    fitted = (theta * times(sigma, theta)).sum()
    residual = max(squares - 2.0 * (theta * b_of(statistics)).sum() + fitted, 0.0)
    prior = PRIOR_RUNS * PRIOR_SHARE**2 * squares / weight
    return float((residual + prior) / (max(weight - dimension, 0.0) + PRIOR_RUNS))


def pace(own: Array, theta: Array, variance: float, spread: float) -> float:
    """How many times as long as its pool's average this device takes, shrunk towards 1.

    y = s <theta, x> + noise with s ~ N(1, spread^2): the posterior mean, from the device's own
    statistics. Little evidence leaves s at 1; plenty lets the device speak for itself.
    """
    if variance <= 0.0:
        return 1.0
    explained = (theta * times(sigma_of(own, 0.0), theta)).sum() / variance
    agreement = (theta * b_of(own)).sum() / variance
    belief = 1.0 / spread**2
    return float(max((agreement + belief) / (explained + belief), 0.05))


def estimate_physically(state: LearnerState, device: int, part: int) -> None:
    """Mean and lower confidence bound of every choice's latency, in milliseconds."""
    physics, rows = state.physics, state.rows[part]
    known = state.synced[device, part] + state.local[device, part]
    size = state.dimension[part]  # without the padding, which has nothing to solve
    inverse = np.zeros((rows.shape[1], rows.shape[1]))
    sigma = sigma_of(known, state.ridge)[:size, :size].copy()
    inverse[:size, :size] = inverse_from(cholesky(sigma))
    theta = times(inverse, b_of(known))
    if physics.nonnegative:
        theta = nonnegative_theta(inverse, b_of(known))
    variance = noise_variance(known, theta, sigma_of(known, 0.0), state.dimension[part])
    if physics.spread[part] > 0.0:
        own, spread = physics.own[device, part], physics.spread[part]
        if physics.apart[device, part]:
            spread = max(spread, APART)
        physics.pace[device, part] = pace(own, theta, variance, spread)
        theta = theta * physics.pace[device, part]
    physics.theta[device, part] = theta
    physics.deviation[device, part] = np.sqrt(variance)
    mean = times(rows, theta)
    square = rows.shape[1] * rows.shape[1]
    norm = np.sqrt(np.abs(times(state.sums_at_zero[part, :, :square], inverse.reshape(-1))))
    width = physics.kappa * np.sqrt(variance)
    if physics.kappa == 0.0:
        width = state.radius[device, part]
    low = mean - width * norm
    if physics.nonnegative:
        low = apply_floors(np.maximum(low, 0.0), physics.floor[part], physics.viable)
    state.mean[device, part] = mean
    state.norm[device, part] = norm
    physics.low[device, part] = low
    physics.stale[device, part] = False


def refresh(state: LearnerState, device: int) -> None:
    """Before a choice: estimate and score anew what has changed since last time."""
    changed = False
    for part in range(state.rows.shape[0]):
        if state.physics.stale[device, part]:
            estimate_physically(state, device, part)
            changed = True
    if changed:
        state.physics.scores[device] = physical_scores(state, device)


def apply_floors(low: Array, floor: Array, viable: BoolArray) -> Array:
    """With theta >= 0, p costs at least min_j x_pj / x_qj of what q costs."""
    result = low.copy()
    for q in range(low.shape[0]):
        if viable[q] and low[q] > 0.0:
            result = np.maximum(result, floor[q] * low[q])
    return result


# --- select --------------------------------------------------------------------------------------


def charged_scores(state: LearnerState, device: int, charge: Array) -> Array:
    """Lower confidence bound of the latency of every choice that can win at all; infinite for the
    others.

    Choices are left out on the assumption that the server is the faster machine. When the
    estimates say otherwise (it is overloaded), every choice is back; one alone is where they leave
    room for it: the server may be slower in one class of work. `charge` is known and comes on
    top of each choice: waiting, and tolls.
    """
    physics = state.physics
    low, mean = physics.low[device].sum(axis=0), state.mean[device].sum(axis=0)
    scores: Array = low + TIE_BREAK * mean + charge
    front, server = physics.front_part, physics.server_part
    considered = physics.viable
    if front >= 0:
        on_device, on_server = state.mean[device, front, -1], state.mean[device, server, 0]
        if on_server + charge[0] > on_device:
            considered = physics.offered
        else:
            considered = considered | worth_a_try(state, device, low + charge, mean + charge)
    result: Array = np.where(considered, scores, np.inf)
    return result


def worth_a_try(state: LearnerState, device: int, low: Array, mean: Array) -> BoolArray:
    """Choices that were left out, though the estimates speak for them: one whose upper confidence
    bound is below the best of the others, and, once that best one is known, one that may save a
    tenth of it. Never one that is expected to cost three times as much, where its back-end is
    taken to last as long as all of the model does on the server: it does not last longer.
    """
    physics = state.physics
    viable = np.where(physics.viable, mean, np.inf)
    best = viable.argmin()
    limit = viable[best]
    width = physics.kappa * physics.deviation[device].reshape(-1, 1) * state.norm[device]
    uncertain = width.sum(axis=0)
    server = state.mean[device, physics.server_part]
    bounded = mean - server + server[0] <= TOO_MUCH * limit
    promising = (low < (1.0 - WORTH_TRYING) * limit) & bounded
    if uncertain[best] > WELL_KNOWN * limit:
        promising = np.zeros_like(promising)
    result: BoolArray = physics.offered & (promising | (mean + uncertain < limit))
    return result


def physical_scores(state: LearnerState, device: int) -> Array:
    """The scores of all choices where nobody waits."""
    return charged_scores(state, device, np.zeros(state.rows.shape[1]))
