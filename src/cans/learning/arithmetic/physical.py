"""What policy `cans` adds to the paper's arithmetic: the physics of latency.

Coefficients of latency are times per unit of work, so they are not negative; that alone gives every
choice a floor once any other one is known. The noise is read off the residuals, so that nobody sets
a radius. Devices of a pool may differ by a factor each. A pool whose predictions are off again and
again, in one direction, has changed and starts anew.

The same rules hold as in `linear.py`: arrays in, arrays out, the subset of NumPy that numba
compiles.
"""

from __future__ import annotations

from math import log1p, sqrt

import numpy as np

from cans.learning.arithmetic.arrays import (
    ANEW,
    INSISTENCE,
    MATURE,
    Array,
    BoolArray,
    IntArray,
    LearnerState,
)
from cans.learning.arithmetic.deviations import (
    LEAST_SPREAD,
    about_averages,
    affordable,
    common_noise,
    deviations,
    differing,
    doubt,
    is_due,
    mature,
    noise_of,
    note_choice,
    note_own,
    note_slow,
    note_unlike,
    scattered,
    share,
    spread_of,
    suspicion,
    too_slow,
    unexplained,
    weighted,
    without_repeats,
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
    over_parts,
    sigma_of,
    squared,
    times,
)
from cans.learning.arithmetic.nonnegative import nonnegative_theta, pin

FLOOR_MS = 3.0
"""Schedulers and radios disturb by a few milliseconds; above that, noise is a share of latency."""

SHORT_MS = 3.0 * FLOOR_MS
"""Latencies up to this may be far shorter than expected by a disturbance alone."""

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

QUICKEST = 0.05
"""No pace is less: what a device takes, as a share of what its pool does."""

TIE_BREAK = 0.01
"""Where the lower confidence bounds cannot tell (both are zero, say), the means do."""

WORTH_TRYING, WELL_KNOWN, TOO_MUCH = 0.1, 0.2, 3.0
"""A choice that was left out is tried if it may save a tenth of the best one's latency, once the
best one is known to a fifth, unless it could cost three times as much."""

LITTLE, NOTABLE = 0.01, 3.0
"""One observation of a hundred changes hardly any estimate: those of a device that has more wait
for each other, unless one has a standardised residual beyond this."""

LEAP = 1e4
"""Growth of what is known along a row by one observation beyond which norms are computed anew: a
difference of two numbers so unequal has lost too many digits."""


# --- observe -------------------------------------------------------------------------------------


def importance(reference: float) -> float:
    """The weight of an observation: noise grows in proportion to latency above a floor."""
    return float(FLOOR_MS**2 / (FLOOR_MS**2 + reference * reference))


def observe_physically(
    state: LearnerState, device: int, part: int, choice: int, latency: float
) -> None:
    """Take in one measured latency of a choice, as `linear.observe` does for the paper's parts."""
    at_zero, per_ms = state.sums_at_zero[part, choice], state.sums_per_ms[part, choice]
    expected, norm = (
        float(state.mean[device, part, choice]),
        float(state.norm[device, part, choice]),
    )
    weight = learn_beside(state, device, part, at_zero, per_ms, expected, latency, choice)
    state.gain[device, part] += weight * norm * norm


def learn(
    state: LearnerState,
    device: int,
    part: int,
    at_zero: Array,
    per_ms: Array,
    latency: float,
    choice: int = -1,
) -> float:
    """Add an observation to the buffer for the pool, and to what the device keeps of its own;
    returns its weight. `choice`: what it is an observation of; -1: of none, a probe.

    The pool learns what an average device would have measured: the latency over this one's pace.
    Otherwise fast devices, which choose other points than slow ones, would bend its picture.
    """
    square = state.rows.shape[2] ** 2
    expected = (per_ms[square:-3] * state.physics.theta[device, part]).sum()
    return learn_beside(state, device, part, at_zero, per_ms, expected, latency, choice)


def learn_beside(
    state: LearnerState,
    device: int,
    part: int,
    at_zero: Array,
    per_ms: Array,
    expected: float,
    latency: float,
    choice: int,
) -> float:
    """As `learn`, where the last estimate expected so many milliseconds."""
    physics = state.physics
    expected, residual = judged(state, device, part, expected, latency, choice)
    # What its noise is judged by is the expected latency, which this noise has not touched; or,
    # where something else has happened, the latency.
    weight, more = importance(expected), 1.0
    if residual > FAR:
        more, weight = weight / importance(latency), importance(latency)
    observation = observation_of(at_zero, per_ms, weight, latency)
    rarity = deviate(state, device, part, residual)
    worth = FAR / residual if residual > FAR else 1.0
    remember(state, device, part, observation, worth, rarity, more)
    bends = choice >= 0 and state.choices.bends[part]
    if bends:
        if residual > FAR:
            state.choices.tested[device, part] = 0.0
        note_own(state, device, part, choice, latency, worth)
        note_choice(state.choices.local, state, device, part, choice, latency)
    square = state.rows.shape[2] ** 2
    divisor = float(physics.divisor[device, part])
    if divisor != 1.0:
        b = observation[square:-3]
        b /= divisor
        observation[-3] /= divisor * divisor
    local = state.local[device, part]
    local += observation
    credit = min(float(state.credit[device, part]) + CREDIT, INSISTENCE)
    if credit >= 1.0 and abs(rarity) > SURPRISING:
        credit -= 1.0
        state.startling[device, part] += observation
        state.awaited[device, part] = FOLLOWED + 1.0
        if bends:
            note_choice(state.choices.startling, state, device, part, choice, latency)
    elif state.awaited[device, part] > 1.0:
        state.awaited[device, part] -= 1.0
    state.credit[device, part] = credit
    pending = float(physics.pending[device, part]) + 1.0
    if pending > 1.0 or physics.stale[device, part]:  # there is more that is new than this
        physics.updates[device, part] = ANEW
    else:
        physics.latest[device, part] = sqrt(weight) * per_ms[square:-3]
    physics.pending[device, part] = pending
    if pending >= LITTLE * physics.own[device, part, -1] or abs(rarity) > NOTABLE:
        physics.stale[device, part] = True
    return weight


def observation_of(at_zero: Array, per_ms: Array, weight: float, latency: float) -> Array:
    """The sums of one observation that counts with this weight; it is worth one all the same."""
    observation: Array = weight * at_zero + (weight * latency) * per_ms
    observation[-3] = weight * latency * latency
    observation[-2] = observation[-1] = 1.0
    return observation


def remember(
    state: LearnerState,
    device: int,
    part: int,
    observation: Array,
    worth: float,
    rarity: float,
    more: float,
) -> None:
    """Keep an observation as the device's own, which its pace follows. When they are off again and
    again in one direction, this device is no longer as it was: its pace starts anew, further from
    its pool if need be, whatever the pool makes of it.

    Until then an observation counts as it does for the pool, so that single accidents say little;
    from then on by the expected latency, `more` times as much, and what is far off for its `worth`,
    no more than what is just believable (Huber).
    """
    physics = state.physics
    if physics.watched[part] and alarmed(physics.alarm[device, part], rarity, 1.0):
        physics.alarm[device, part] = 0.0
        physics.own[device, part] = 0.0
        physics.apart[device, part] = True
        if state.choices.used:
            state.choices.own[device, part] = 0.0
    kept = observation
    if physics.apart[device, part] and more * worth != 1.0:
        kept = observation * (more * worth)
        kept[-2], kept[-1] = worth, 1.0
    own = physics.own[device, part]
    own += kept


def alarmed(alarm: Array, residual: float, observations: float, room: float = 1.0) -> bool:
    """Page's cumulative sums, one per direction; true when either passes the alarm level.

    The drift is per observation. Of many that come together most are from before what sounds the
    alarm now, and do not speak against it. Nor does what has little `room` to be faster, unless it
    is slower: the sum of that direction is a likelihood ratio, in which an observation weighs by
    the difference that it would have shown.
    """
    recent = min(max(observations, 1.0), RECENT)
    slower = max(float(alarm[0]) + min(residual, SLOWER[0]) - SLOWER[1] * recent, 0.0)
    quicker = min(-residual, -room * residual, room * FASTER[0])
    faster = max(float(alarm[1]) + quicker - room * room * FASTER[1] * recent, 0.0)
    alarm[0], alarm[1] = slower, faster
    return slower > SLOWER[2] or faster > FASTER[2]


def unsurprised(alarm: Array) -> None:
    """Of somebody nothing was heard who had reason to speak if the pool had changed: as if what it
    observed had been what was expected."""
    alarm[0] = max(float(alarm[0]) - SLOWER[1], 0.0)
    alarm[1] = max(float(alarm[1]) - FASTER[1], 0.0)


def deviate(state: LearnerState, device: int, part: int, residual: float) -> float:
    """A standardised residual as the normal deviate that is about as rare: the noise itself is
    known from so many observations only, the one that is about to be added included (Student)."""
    known = float(state.synced[device, part, -2] + state.local[device, part, -2]) + 1.0
    freedom = max(known - int(state.dimension[part]), 0.0) + PRIOR_RUNS
    rarity = sqrt(freedom * log1p(residual * residual / freedom))
    return -rarity if residual < 0.0 else rarity


def expectation(
    state: LearnerState, device: int, part: int, per_ms: Array, latency: float
) -> tuple[float, float]:
    """The latency that was expected, in ms, and the standardised residual of the measured one;
    the latency itself and 0 where nothing is expected yet."""
    square = state.rows.shape[2] ** 2
    expected = (per_ms[square:-3] * state.physics.theta[device, part]).sum()
    return judged(state, device, part, expected, latency)


def judged(
    state: LearnerState, device: int, part: int, expected: float, latency: float, choice: int = -1
) -> tuple[float, float]:
    """As `expectation`, where the last estimate expected so many milliseconds of a choice."""
    deviation = float(state.physics.deviation[device, part])
    if choice >= 0 and state.choices.used:
        deviation = max(deviation, float(state.choices.scatter[device, part, choice]))
    young = state.synced[device, part, -2] < int(state.dimension[part]) + MATURE
    if young or deviation <= 0.0:  # zero: it has not estimated anything yet
        return abs(latency), 0.0
    scale = sqrt(importance(expected)) / deviation
    return expected, (latency - expected) * scale * keenness(expected, latency)


def keenness(expected: float, latency: float) -> float:
    """By how much more a residual counts that is of something faster than expected. A share of what
    was expected is at most all of it, however much faster something has become; so its noise is
    taken to be a share of the geometric mean of what was expected and what was measured. Not where
    both are short: there it is no share."""
    if abs(latency) >= expected:
        return 1.0
    return float(((SHORT_MS**2 + expected**2) / (SHORT_MS**2 + latency**2)) ** 0.25)


# --- estimate ------------------------------------------------------------------------------------


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
    known = state.synced[device, part, -1] + state.local[device, part, -1]
    others = max(1.0 - state.physics.own[device, part, -1] / max(known, 1.0), 0.0)
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


def refresh(state: LearnerState, device: int) -> None:
    """Before a choice: estimate and score anew, if something of weight has changed since last time.
    All parts go through it together: a few large operations take less time than many small ones."""
    physics = state.physics
    if np.count_nonzero(physics.stale[device]) == 0:
        return
    for part in range(state.rows.shape[0]):
        bent = state.choices.used and state.choices.spread[device, part] > 0.0
        if bent or physics.pending[device, part] > 0.0:  # bent: its line was replaced
            physics.stale[device, part] = True
    physics.pending[device] = 0.0
    update_roots(state, device)
    for part in range(state.rows.shape[0]):
        if physics.stale[device, part] and physics.updates[device, part] >= ANEW:
            compute_root(state, device, part)
    estimate_physically(state, device)
    predict(state, device)
    if state.choices.used:
        look_into_choices(state, device)
    physics.scores[device] = physical_scores(state, device)


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
            if not known:
                choices.spread[device, part] = 0.0
            elif due or choices.spread[device, part] > 0.0:
                bend(state, device, part, due)
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
    sums = weighted(seen, mean)
    prior = PRIOR_RUNS * PRIOR_SHARE**2 * known[-3] / known[-2] if known[-2] > 0.0 else 0.0
    noise, variance = noise_of(sums, mean, prior)
    if due:
        certain = norms(physics.root[device, part, :size, :size].copy(), columns)
        choices.spread[device, part] = spread_of(sums, mean, certain, noise, variance)
    spread = choices.spread[device, part]
    if spread <= 0.0:
        return
    sigma, b = without_repeats(rows, sums, unexplained(sums, mean, spread, noise))
    for column in range(size):
        sigma[column, column] += state.ridge
    sigma, b = sigma[:size, :size].copy(), b[:size].copy()
    root = inverse_root(sigma)
    inverse = squared(root)
    theta = np.zeros_like(theta)
    theta[:size] = times(inverse, b)
    if physics.nonnegative:
        theta[:size] = nonnegative_theta(sigma, b, theta[:size].copy(), inverse)
    line = times(rows, theta)
    sums = weighted(seen, line)
    left = unexplained(sums, line, spread, noise)
    width = doubt(line, norms(root, columns), left, spread, variance)
    width = np.where(state.informative[part], width, 0.0)
    mean = np.maximum(line + deviations(sums, line, left), 0.0)
    if physics.spread[part] > 0.0:
        own = weighted(choices.own[device, part], line)
        explained, agreement = (own[0] * mean * mean).sum(), (own[1] * mean).sum()
        differ = spread_of_devices(state, device, part)
        physics.pace[device, part] = pace_from(explained, agreement, variance, differ)
        physics.divisor[device, part] = pace_by_choice(state, device, part, line, variance, spread)
    if not choices.largest[0]:
        scale = times(state.rows[part], theta) / np.where(line > 0.0, line, 1.0)
        mean, width = mean * scale, width * scale
    mean = mean * physics.pace[device, part]
    physics.theta[device, part] = theta * physics.pace[device, part]
    physics.deviation[device, part] = sqrt(variance)
    state.mean[device, part] = mean
    choices.width[device, part] = width
    bound(state, device, part, left)


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
    above = np.where(more & (column <= row), 1.0, 0.0)  # p bounds q from above ...
    np.fill_diagonal(above, 0.0)  # ... and none itself: what is said of it may be too low
    below = np.where(more & (row <= column), 1.0, 0.0).reshape(1, *more.shape)  # q bounds p
    ceiling = lowest_ceilings(mean + physics.kappa * width, above)
    low = np.minimum(apply_floors(low, below, physics.offered)[0], ceiling)
    physics.low[device, part] = low
    if physics.kappa > 0.0:
        known = np.where(mean > ceiling, (ceiling - low) / physics.kappa, np.inf)
        state.choices.width[device, part] = np.minimum(width, known)
    state.mean[device, part] = np.minimum(np.maximum(mean, low), ceiling)


def apply_floors(low: Array, floor: Array, viable: BoolArray) -> Array:
    """With theta >= 0, p costs at least min_j x_pj / x_qj of what q costs; of one part or of
    several at once."""
    floors = (floor * (low * viable)[..., None]).max(axis=-2)
    result: Array = np.maximum(low, floors)
    return result


def lowest_ceilings(high: Array, more: Array) -> Array:
    """The least of the upper bounds of all choices that have no less work: more[q, p] is 1 where p
    has no less than q."""
    ceilings: Array = np.where(more > 0.0, high, np.inf).min(axis=1)
    return ceilings


def highest_floors(low: Array, floor: Array, sources: IntArray) -> Array:
    """What `apply_floors` raises to: floors (sources, parts, choices) by a few choices alone."""
    bounds = low.take(sources, axis=1).T[:, :, None]
    floors: Array = np.maximum.reduce(floor * bounds, axis=0)
    return floors


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
    low, mean = lower_bounds(state, device) + charge, over_parts(state.mean[device])
    scores: Array = low + TIE_BREAK * mean
    front, server = physics.front_part, physics.server_part
    barred = physics.barred
    if front >= 0:
        on_device, on_server = state.mean[device, front, -1], state.mean[device, server, 0]
        if on_server + charge[0] > on_device:
            barred = np.where(physics.offered, 0.0, np.inf)
        else:
            barred = barred_still(state, device, low, mean + charge)
    if state.choices.used:
        if state.choices.spread[device].max() > 0.0:
            considered = physics.offered & affordable(state, device, mean + charge)
            barred = np.where(considered, 0.0, np.inf)
        expected = np.maximum(mean, state.choices.seen[device]) + charge + barred
        slow = too_slow(state, device, charge, float(expected.min()))
        barred = np.where(slow | too_far(state, device, mean + charge, barred), np.inf, barred)
    result: Array = scores + barred
    return result


def lower_bounds(state: LearnerState, device: int) -> Array:
    """Lower confidence bound of the latency of every choice, over all parts.

    Where lines fit, the parts' bounds are added up, as in Eq. 3. Where choices deviate, what is
    open of the front-end of a choice has nothing to do with what is open of its back-end: variances
    are added up. What physics says beyond the mean counts in full.
    """
    physics = state.physics
    if not state.choices.used or state.choices.spread[device].max() <= 0.0:
        return over_parts(physics.low[device])
    below = np.maximum(state.mean[device] - physics.low[device], 0.0)
    bounds: Array = over_parts(physics.low[device] + below) - np.sqrt(over_parts(below * below))
    return bounds


def too_far(state: LearnerState, device: int, mean: Array, barred: Array) -> BoolArray:
    """Choices whose way to the server alone is expected to take `TOO_MUCH` times as long as the
    best choice does at most: that a link is uncertain is no reason to try it there. Exchanges that
    are timed for their own sake say more about it, at less cost."""
    physics, width = state.physics, state.choices.width[device]
    front, server = physics.front_part, physics.server_part
    if front < 0:
        return np.zeros(mean.shape[0], dtype=np.bool_)
    best = (mean + barred).argmin()
    most = mean[best] + physics.kappa * sqrt((width[:, best] ** 2).sum())
    link = over_parts(state.mean[device]) - state.mean[device, front] - state.mean[device, server]
    far: BoolArray = link > TOO_MUCH * most
    return far


def barred_still(state: LearnerState, device: int, low: Array, mean: Array) -> Array:
    """Infinite for choices that are left out, zero for the others. The estimates speak for one that
    was left out if its upper confidence bound is below the best of the others, and, once that best
    one is known, if it may save a tenth of it. Never for one that is expected to cost three times
    as much, where its back-end is taken to last as long as all of the model does on the server: it
    does not last longer.
    """
    physics = state.physics
    viable = mean + physics.barred
    best = viable.argmin()
    limit = float(viable[best])
    left_out = physics.offered > physics.viable
    if np.count_nonzero(left_out & (np.minimum(low, mean) < limit)) == 0:
        return physics.barred
    if state.choices.used:
        uncertain = physics.kappa * over_parts(state.choices.width[device])
    else:
        widths = (physics.kappa * physics.deviation[device]).reshape(-1, 1)
        uncertain = over_parts(widths * state.norm[device])
    better = mean + uncertain < limit
    if uncertain[best] <= WELL_KNOWN * limit:
        server = state.mean[device, physics.server_part]
        bounded = mean - server <= TOO_MUCH * limit - server[0]
        better = better | ((low < (1.0 - WORTH_TRYING) * limit) & bounded)
    result: Array = np.where(physics.offered & better, 0.0, physics.barred)
    return result


def physical_scores(state: LearnerState, device: int) -> Array:
    """The scores of all choices where nobody waits."""
    return charged_scores(state, device, np.zeros(state.rows.shape[1]))
