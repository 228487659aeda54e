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

from cans.learning.arrays import Array, BoolArray, LearnerState, PoolState
from cans.learning.linear import b_of, cholesky, inverse_from, scaled, sigma_of, times

FLOOR_MS = 3.0
"""Schedulers and radios disturb by a few milliseconds; above that, noise is a share of latency."""

PRIOR_RUNS, PRIOR_SHARE = 2.0, 0.3
"""Before residuals speak: noise of three tenths of the latency, worth two observations."""

SLOWER, FASTER = (6.0, 2.0, 11.0), (4.0, 1.0, 8.0)
"""Clip, drift and alarm level of the cumulative sum of standardised residuals in each direction:
three observations far off sound it, one liar among honest devices never does. A busy machine is
slower for a second or so in all that it is asked, which is no change that would last; it is never
faster."""

TRUST = 3.0
"""Standardised residual beyond which an upload is taken at less than its full weight."""

FAR = 5.0
"""Standardised residual beyond which an observation is of something else than what was expected."""

TIE_BREAK = 0.01
"""Where the lower confidence bounds cannot tell (both are zero, say), the means do."""

MATURE = 5.0
"""Observations beyond one per feature before a pool's predictions are tested."""


# --- observe -------------------------------------------------------------------------------------


def importance(reference: float) -> float:
    """The weight of an observation: noise grows in proportion to latency above a floor."""
    return float(FLOOR_MS**2 / (FLOOR_MS**2 + reference * reference))


def learn(
    state: LearnerState, device: int, part: int, at_zero: Array, per_ms: Array, latency: float
) -> None:
    """Add an observation to the buffer for the pool, and to what the device keeps of its own.

    The pool learns what an average device would have measured: the latency over this one's pace.
    Otherwise fast devices, which choose other points than slow ones, would bend its picture.
    """
    physics = state.physics
    observation = (at_zero + latency * per_ms) * importance(
        reference_latency(state, device, part, per_ms, latency)
    )
    observation[-3] = observation[-3] + observation[-2] * latency * latency
    observation[-2:] = 1.0
    physics.own[device, part] += observation
    square = state.rows.shape[2] ** 2
    observation[square:-3] /= physics.pace[device, part]
    observation[-3] /= physics.pace[device, part] ** 2
    state.local[device, part] += observation
    physics.stale[device, part] = True


def reference_latency(
    state: LearnerState, device: int, part: int, per_ms: Array, latency: float
) -> float:
    """What an observation's noise is judged by: the expected latency, which this noise has not
    touched; or, where nothing is expected yet or something else has happened, the latency."""
    physics = state.physics
    if state.synced[device, part, -2] < physics.dimension[part] + MATURE:
        return abs(latency)
    square = state.rows.shape[2] ** 2
    expected = (per_ms[square:-3] * physics.theta[device, part]).sum()
    far = FAR * physics.deviation[device, part] / np.sqrt(importance(expected))
    return float(latency if latency - expected > far else expected)


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
    sigma = sigma_of(known, state.ridge)
    inverse = inverse_from(cholesky(sigma))
    theta = times(inverse, b_of(known))
    if physics.nonnegative:
        theta = nonnegative_theta(inverse, b_of(known))
    variance = noise_variance(known, theta, sigma_of(known, 0.0), physics.dimension[part])
    if physics.spread[part] > 0.0:
        own = physics.own[device, part]
        physics.pace[device, part] = pace(own, theta, variance, physics.spread[part])
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
    """Before a choice: estimate anew what has changed since last time."""
    for part in range(state.rows.shape[0]):
        if state.physics.stale[device, part]:
            estimate_physically(state, device, part)


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
    estimates say otherwise (it is overloaded), every choice is back. `charge` is known and comes on
    top of each choice: waiting, and tolls.
    """
    physics = state.physics
    scores: Array = physics.low[device].sum(axis=0) + TIE_BREAK * state.mean[device].sum(axis=0)
    scores = scores + charge
    front, server = physics.front_part, physics.server_part
    if front >= 0:
        on_device, on_server = state.mean[device, front, -1], state.mean[device, server, 0]
        if on_server + charge[0] > on_device:
            return scores
    result: Array = np.where(physics.viable, scores, np.inf)
    return result


def physical_scores(state: LearnerState, device: int) -> Array:
    """The scores of all choices where nobody waits."""
    return charged_scores(state, device, np.zeros(state.rows.shape[1]))


# --- merge ---------------------------------------------------------------------------------------


def surprise(pool: Array, upload: Array, ridge: float, dimension: int) -> float:
    """Standardised residual of an upload under its pool's estimate; positive: slower than thought.

    Σ <theta, x> (y - <theta, x>) needs the sums alone, so that it works for any upload.
    `dimension` is without the padding: it counts what has to be learned.
    """
    if pool[-2] < dimension + MATURE:
        return 0.0
    inverse = inverse_from(cholesky(sigma_of(pool, ridge)))
    theta = nonnegative_theta(inverse, b_of(pool))
    variance = noise_variance(pool, theta, sigma_of(pool, 0.0), dimension)
    direction = times(sigma_of(upload, 0.0), theta)
    explained = (theta * direction).sum()
    uncertain = explained + (direction * times(inverse, direction)).sum()
    if explained <= 0.0 or variance <= 0.0:
        return 0.0
    score = (theta * b_of(upload)).sum() - explained
    return float(score / np.sqrt(variance * uncertain))


def carried_over(pool: Array, upload: Array, ridge: float) -> Array:
    """What a pool that has changed starts anew with: nothing if it became faster, which is worth
    trying out; if it became slower, its past at the level of the upload that sounded the alarm.
    What was not worth trying before is not now, and a slow trial is what costs most.

    The past counts for the square root of what it was worth, so that the present soon overrules it.
    Observations weigh about 1 / latency^2: b scales by 1 / level and Sigma by its square.
    """
    theta = nonnegative_theta(inverse_from(cholesky(sigma_of(pool, ridge))), b_of(pool))
    explained = (theta * times(sigma_of(upload, 0.0), theta)).sum()
    level = (theta * b_of(upload)).sum() / explained if explained > 0.0 else 0.0
    if level <= 1.0 or pool[-2] <= 0.0:
        return np.zeros_like(pool)
    square = theta.shape[0] * theta.shape[0]
    past: Array = pool * min(np.sqrt(1.0 / pool[-2]), 1.0)
    past[:square] /= level * level
    past[square:-3] /= level
    past[-1] = 0.0
    return past


def trust(residual: float) -> float:
    """Huber's weight: what is far off counts for no more than what is just believable."""
    return float(min(1.0, TRUST / max(abs(residual), TRUST)))


def alarmed(alarm: Array, residual: float) -> bool:
    """Page's cumulative sums, one per direction; true when either passes the alarm level."""
    alarm[0] = max(alarm[0] + min(residual, SLOWER[0]) - SLOWER[1], 0.0)
    alarm[1] = max(alarm[1] + min(-residual, FASTER[0]) - FASTER[1], 0.0)
    return bool(alarm[0] > SLOWER[2] or alarm[1] > FASTER[2])


def merge(
    pools: PoolState,
    pool: int,
    part: int,
    upload: Array,
    time: float,
    ridge: float,
    watched: bool,
    dimension: int,
) -> None:
    """Alg. 2 lines 3 and 7, for pools that may start anew."""
    statistics = pools.statistics[pool, part]
    pools.time[pool, part] = max(time, pools.time[pool, part])
    trusted = upload
    if watched:
        residual = surprise(statistics, upload, ridge, dimension)
        trusted = scaled(upload, trust(residual))
        if alarmed(pools.alarm[pool, part], residual):
            statistics[:] = carried_over(statistics, upload, ridge)
            pools.alarm[pool, part] = 0.0
            pools.epoch[pool, part] += 1
            trusted = upload
    statistics += trusted
    pools.round[pool, part] += 1


def credit(state: LearnerState, device: int, part: int, time: float) -> None:
    """What the server has taken in is in its pool: add it to our copy until a newer one comes."""
    state.synced[device, part] += state.sent[device, part]
    state.synced_time[device, part] = max(time, state.synced_time[device, part])
    state.physics.stale[device, part] = True
