"""What becomes of an upload and of a download: the rules of pools, each written once.

The server's side works on `PoolState`, the device's on `LearnerState`; both are arrays, in the
subset of NumPy that numba compiles, so that `EdgeAggregator`, the stores, `DeviceLearner` and the
compiled engine all call these functions.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import (
    ANEW,
    LARGEST,
    MATURE,
    SUMS,
    Array,
    LearnerState,
    PoolState,
)
from cans.learning.arithmetic.by_choice.deviations import (
    FLOOR_MS,
    about_averages,
    scattered,
    share,
    weighted,
)
from cans.learning.arithmetic.estimating import estimate_of, noise_variance
from cans.learning.arithmetic.exchange import choices_are_news, is_news
from cans.learning.arithmetic.linear import (
    adopt,
    b_of,
    cholesky,
    inverse_from,
    scaled,
    sigma_of,
    times,
)
from cans.learning.arithmetic.observing import PRIOR_RUNS, PRIOR_SHARE, SLOWER, alarmed, keenness

NO_CHOICES = np.zeros((SUMS, 0))
"""The sums of every choice of a policy that has none."""

MISFIT = 3.0
"""Standard deviations by which the averages of choices must miss a line that does not fit them."""

OFTEN = 3.0
"""Observations of a choice beyond the first that say how it scatters."""

AS_MUCH, SMALLEST_MS = 10.0, 1e-3
"""A past is carried over as slower by at most so many times what an upload was, in ms."""

NOTHING = 1e-9
"""The share of a latency, squared, of which nothing can be said to have been expected: rounding."""

TRUST = 3.0
"""Standardised residual beyond which an upload is taken at less than its full weight."""

SPEAKS_OF_A_CHANGE = SLOWER[1]
"""Standardised residual beyond which an upload makes an alarm likelier. That of something far
slower than expected may be hardly more: it weighs by how long it took."""


# --- the server: merge ---------------------------------------------------------------------------


def merge(
    pools: PoolState,
    pool: int,
    part: int,
    upload: Array,
    epoch: int,
    time: float,
    ridge: float,
    watched: bool,
    dimension: int,
    choices: Array = NO_CHOICES,
) -> None:
    """Alg. 2 lines 3 and 7, made safe: an upload made for an epoch that has ended is retired; in a
    watched pool, what is far off counts for less, and too much of it starts the pool anew.
    `choices` are the upload's sums of every choice."""
    if epoch < pools.epoch[pool, part]:
        pools.retired[pool, part] += upload
        pools.choices_retired[pool, part] += choices
        return
    pools.time[pool, part] = max(time, pools.time[pool, part])
    statistics, taken = pools.statistics[pool, part], upload
    by_choice, believed = pools.choices[pool, part], 1.0
    if watched:
        # What follows a surprise is judged by the line: the surprise is in the scatter already.
        said = choices if pools.alarm[pool, part].max() == 0.0 else choices * 0.0
        residual, room = against_line(statistics, upload, ridge, dimension, by_choice, said)
        if by_choice.shape[1] > 0:
            line = residual
            residual = by_its_choice(statistics, by_choice, upload, choices, line, ridge, dimension)
        if alarmed(pools.alarm[pool, part], residual, upload[-1], room):
            level = level_of(statistics, upload, ridge)
            variance = usual_noise(by_choice, line_variance(statistics, ridge, dimension))
            past = choices_at(level, statistics[-2], by_choice, variance)
            start_anew(pools, pool, part, carried_over(statistics, upload, ridge))
            by_choice += past
        else:
            believed = trust(residual)
            taken = scaled(upload, believed)
            pools.doubted[pool, part] += upload - taken
            pools.choices_doubted[pool, part] += choices * (1.0 - believed)
    statistics += taken
    by_choice += choices * believed
    pools.round[pool, part] += 1


def start_anew(pools: PoolState, pool: int, part: int, past: Array) -> None:
    """A reset is a decision of the server: a new epoch, and what was known is retired. Of its past
    it may start with sums that stand for no observation."""
    pools.retired[pool, part] += pools.statistics[pool, part]
    pools.choices_retired[pool, part] += pools.choices[pool, part]
    pools.choices[pool, part] = 0.0
    pools.statistics[pool, part] = past
    pools.alarm[pool, part] = 0.0
    pools.epoch[pool, part] += 1
    pools.told[pool, part, -2] = -1.0  # less than any worth: nothing was told of this epoch


def publish(pools: PoolState, pool: int, part: int, ridge: float, dimension: int) -> None:
    """After a merge: a new edition, if the pool is news to who was told of the last one."""
    now, told = pools.statistics[pool, part], pools.told[pool, part]
    moved, grown = pools.news
    news = told[-2] < 0.0 or is_news(told, now, ridge, dimension, moved, grown)
    if pools.choices.shape[3] > 0 and not news:
        news = choices_are_news(pools.choices_told[pool, part], pools.choices[pool, part])
    if news:
        pools.told[pool, part] = now
        pools.choices_told[pool, part] = pools.choices[pool, part]
        pools.edition[pool, part] += 1


def surprise(
    pool: Array,
    upload: Array,
    ridge: float,
    dimension: int,
    known: Array = NO_CHOICES,
    said: Array = NO_CHOICES,
) -> float:
    """Standardised residual of an upload under its pool's estimate; positive: slower than thought.

    Σ <theta, x> (y - <theta, x>) needs the sums alone, so that it works for any upload. One of many
    observations is judged by the average of them: that a model is a little off, which many
    observations prove, is no change. `dimension` is without the padding; `known` and `said` are the
    sums of every choice of pool and upload.
    """
    return against_line(pool, upload, ridge, dimension, known, said)[0]


def against_line(
    pool: Array, upload: Array, ridge: float, dimension: int, known: Array, said: Array
) -> tuple[float, float]:
    """The `surprise` of an upload, and its room to be faster, from 0 to 1: what is expected to take
    next to nothing has none, whatever became of the rest."""
    # What was carried over from before a change is a guess, which is not tested.
    if min(pool[-2], pool[-1]) < dimension + MATURE or upload[-1] < 1.0:
        return 0.0, 0.0
    inverse = inverse_from(cholesky(sigma_of(pool, ridge)))
    theta = estimate_of(pool, ridge, inverse)
    variance = noise_variance(pool, theta, sigma_of(pool, 0.0), dimension)
    if said[0].sum() > 0.0:
        variance = (said[0] * scattered(known, variance)).sum() / said[0].sum()
    direction = times(sigma_of(upload, 0.0), theta)
    explained = (theta * direction).sum()
    uncertain = explained + (direction * times(inverse, direction)).sum() / upload[-1]
    room = float(min(np.sqrt(max(explained, 0.0) / upload[-2]) / FLOOR_MS, 1.0))
    if explained <= NOTHING * upload[-3] or variance <= 0.0:
        return 0.0, room
    agreement = (theta * b_of(upload)).sum()
    usual = milliseconds(explained / upload[-2])
    keen = keenness(usual, usual * agreement / explained)
    residual = keen * (agreement - explained) / np.sqrt(variance * uncertain * upload[-1])
    return float(residual), room


def carried_over(pool: Array, upload: Array, ridge: float) -> Array:
    """What a pool that has changed starts anew with: nothing if it became faster, which is worth
    trying out; if it became slower, its past at the level of the upload that sounded the alarm.
    What was not worth trying before is not now, and a slow trial is what costs most.

    The past counts for the square root of what it was worth, so that the present soon overrules it.
    Observations weigh about 1 / latency^2: b scales by 1 / level and Sigma by its square.
    """
    level = level_of(pool, upload, ridge)
    if level <= 1.0 or pool[-2] <= 0.0:
        return np.zeros_like(pool)
    dimension = b_of(pool).shape[0]
    square = dimension * dimension
    past: Array = pool * min(np.sqrt(1.0 / pool[-2]), 1.0)
    past[:square] /= level * level
    past[square:-3] /= level
    past[-1] = 0.0
    return past


def level_of(pool: Array, upload: Array, ridge: float) -> float:
    """How many times as long as its pool expects what an upload tells of has taken. A choice that
    takes a few milliseconds where next to nothing was expected does not say that everything takes
    a thousand times as long: a past is not expected to take longer by more than `AS_MUCH` times
    what the upload did."""
    theta = estimate_of(pool, ridge, inverse_from(cholesky(sigma_of(pool, ridge))))
    explained = (theta * times(sigma_of(upload, 0.0), theta)).sum()
    if explained <= 0.0 or pool[-2] <= 0.0 or upload[-2] <= 0.0:
        return 0.0
    level = (theta * b_of(upload)).sum() / explained
    usual = milliseconds((theta * times(sigma_of(pool, 0.0), theta)).sum() / pool[-2])
    longer = milliseconds(upload[-3] / upload[-2]) - milliseconds(explained / upload[-2])
    return float(min(level, 1.0 + AS_MUCH * max(longer, 0.0) / max(usual, SMALLEST_MS)))


def milliseconds(square: float) -> float:
    """The latency whose square, weighted as `importance` does, is this: it approaches 9."""
    whole = FLOOR_MS * FLOOR_MS
    return float(np.sqrt(square * whole / max(whole - square, whole * 1e-4)))


def choices_at(level: float, known: float, choices: Array, variance: float) -> Array:
    """The sums of every choice, as `carried_over` has those of the line. They scatter as is usual,
    `variance`: the first observations of what has changed are among them, and how far these were
    from the rest is no noise."""
    if level <= 1.0 or known <= 0.0:
        return np.zeros_like(choices)
    past: Array = choices * min(np.sqrt(1.0 / known), 1.0)
    average = level * past[1] / np.where(past[0] > 0.0, past[0], 1.0)
    past[1] = past[0] * average
    past[2] = past[0] * (average * average + variance / share(average))
    return past


def usual_noise(choices: Array, line: float) -> float:
    """Noise variance of the middle one of the choices that were seen often, no more than that of
    the `line`, in which is also by how much the choices deviate from it."""
    average = choices[1] / np.where(choices[0] > 0.0, choices[0], 1.0)
    squares, freedom = about_averages(choices, average)
    often = freedom >= OFTEN
    count = np.count_nonzero(often)
    if count == 0:
        return line
    ordered = np.sort(np.where(often, squares / np.maximum(freedom, 1.0), np.inf))
    return min(float(ordered[(count - 1) // 2]), line)


def line_variance(pool: Array, ridge: float, dimension: int) -> float:
    """Noise of a pool about its line."""
    theta = estimate_of(pool, ridge, inverse_from(cholesky(sigma_of(pool, ridge))))
    return noise_variance(pool, theta, sigma_of(pool, 0.0), dimension)


def by_its_choice(
    pool: Array,
    known: Array,
    upload: Array,
    said: Array,
    residual: float,
    ridge: float,
    dimension: int,
) -> float:
    """The standardised residual of an upload where choices may deviate. If the pool's line fits its
    choices it is that against the line, as given; otherwise against the pool's averages of the same
    choices, and 0 if it has none: of a choice that nobody has tried such a line says little."""
    seen = known[0] > 0.0
    beyond = np.count_nonzero(seen) - dimension
    if residual == 0.0 or said[0].sum() <= 0.0 or beyond <= 0:
        return residual
    average = known[1] / np.where(seen, known[0], 1.0)
    of_choices = min(known[0].sum(), pool[-2])
    timed = pool[-2] - of_choices  # exchanges, which are of no choice: each misses by its noise
    known, said = weighted(known, average), weighted(said, average)
    weight = np.where(seen, known[0], 1.0)
    prior = PRIOR_RUNS * PRIOR_SHARE**2 * pool[-3] / pool[-2]
    squares = np.maximum(known[2] - known[1] * average, 0.0).sum()
    variance = (squares + prior) / (max(of_choices - dimension - beyond, 0.0) + PRIOR_RUNS)
    theta = estimate_of(pool, ridge, inverse_from(cholesky(sigma_of(pool, ridge))))
    fitted = (theta * times(sigma_of(pool, 0.0), theta)).sum()
    misses = pool[-3] - 2.0 * (theta * b_of(pool)).sum() + fitted - squares
    usual = beyond + timed
    if variance <= 0.0 or misses <= variance * (usual + MISFIT * np.sqrt(2.0 * usual)):
        return residual
    explained = (said[0] * average * average).sum()
    if (said[0] > 0.0)[known[0] <= 0.0].any() or explained <= 0.0:
        return 0.0
    uncertain = explained + ((said[0] * average) ** 2 / weight).sum() / upload[-1]
    score = (average * said[1]).sum() - explained
    return float(score / np.sqrt(variance * uncertain * upload[-1]))


def trust(residual: float) -> float:
    """Huber's weight: what is far off counts for no more than what is just believable."""
    return float(min(1.0, TRUST / max(abs(residual), TRUST)))


# --- a device: adopt, confirm, retire ------------------------------------------------------------


def take_in(
    state: LearnerState,
    device: int,
    part: int,
    pool: Array,
    epoch: int,
    round_: int,
    time: float,
    choices: Array = NO_CHOICES,
) -> None:
    """A download arrives (Alg. 1 lines 11-12). One that was overtaken, by a reset or by a later
    one, changes nothing; one of a new epoch retires what was observed for the last."""
    if epoch < state.epoch[device, part]:
        return
    if epoch > state.epoch[device, part]:
        retire(state, device, part)
        state.epoch[device, part] = epoch
    elif round_ < state.round[device, part]:
        return
    state.round[device, part] = round_
    if choices.shape[1] > 0:
        state.choices.synced[device, part] = choices
    adopt(state, device, part, pool, time)


def retire(state: LearnerState, device: int, part: int) -> None:
    """What is in the buffer was observed for an epoch that the server has ended. What is on its way
    stays there: the server retires it when it arrives."""
    state.retired[device, part] += state.local[device, part] - state.sent[device, part]
    state.local[device, part] = state.sent[device, part]
    state.startling[device, part] = 0.0
    state.awaited[device, part] = 0.0
    if state.choices.used:
        choices = state.choices
        choices.retired[device, part] += choices.local[device, part] - choices.sent[device, part]
        choices.local[device, part] = choices.sent[device, part]
        choices.startling[device, part] = 0.0
        choices.own[device, part] = 0.0
        choices.tested[device, part] = 0.0
        choices.suspected[device, part] = LARGEST
    if state.physics.used:  # the device's own past belongs to the ended epoch too
        state.physics.own[device, part] = 0.0
        state.physics.alarm[device, part] = 0.0
        state.physics.apart[device, part] = False
        state.physics.dropped[device, part] = 0.0
        state.physics.pace[device, part] = state.physics.divisor[device, part] = 1.0
        state.physics.unlike[device, part] = 0.0


def send(state: LearnerState, device: int, part: int) -> None:
    """An upload is made (Alg. 1 line 9): remember what it carries. What was surprising goes alone,
    so that nothing ordinary hides it."""
    choices = state.choices
    if state.events[part] and state.startling[device, part, -1] > 0.0:
        state.sent[device, part] = state.startling[device, part]
        if choices.used:
            choices.sent[device, part] = choices.startling[device, part]
    else:
        state.sent[device, part] = state.local[device, part]
        state.awaited[device, part] = 0.0
        if choices.used:
            choices.sent[device, part] = choices.local[device, part]
    state.startling[device, part] = 0.0
    if choices.used:
        choices.startling[device, part] = 0.0


def acknowledge(state: LearnerState, device: int, part: int) -> None:
    """The server has it: drop it from the buffer, and nothing that was observed meanwhile."""
    state.local[device, part] -= state.sent[device, part]
    state.sent[device, part] = 0.0
    if state.physics.used:
        state.physics.updates[device, part] = ANEW
    if state.choices.used:
        state.choices.local[device, part] -= state.choices.sent[device, part]
        state.choices.sent[device, part] = 0.0


def confirm(
    state: LearnerState, device: int, part: int, epoch: int, round_: int, time: float
) -> None:
    """As `acknowledge`, for who does not adopt the pool now: our copy of it has the upload too,
    unless it is newer than that, or of another epoch."""
    if epoch == state.epoch[device, part] and round_ > state.round[device, part]:
        now = state.synced[device, part] + state.sent[device, part]
        if state.choices.used:
            state.choices.synced[device, part] += state.choices.sent[device, part]
        acknowledge(state, device, part)
        adopt(state, device, part, now, time)
    else:
        acknowledge(state, device, part)
