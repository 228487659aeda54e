"""What a line mispredicts: every choice of a part may deviate from it, by an amount of its own.

A few features explain most of a layer's time and never all of it. So beside the sums of the line
there are three of every choice: how many observations, their latencies and the squares of those.
A latency is the line's plus a deviation of its choice. Weighted as observations are (noise
is a share of latency, above a few milliseconds), deviations have one variance. It is read off how
far the averages of the choices are from the line, beyond noise: zero where the line fits, and then
nothing changes. Otherwise all observations of one choice together say no more about the line than
one deviation leaves open.

Devices of one pool may differ, each by a factor. By how much, they tell each other with two more
sums: where they do not, nobody's factor is anything but noise.

The rules of `linear.py` hold: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from cans.learning.arithmetic.arrays import LARGEST, Array, LearnerState
from cans.learning.arithmetic.by_choice.counts import observed
from cans.learning.arithmetic.linear import norms, times

FLOOR_MS = 3.0
"""Schedulers and radios disturb by a few milliseconds; above that, noise is a share of latency."""

SPREADS = np.array([0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5])
"""Standard deviations of the choices about their line that are told apart, as shares of latency."""

OBSERVATIONS, COUNTED, LIKELIER = 4.0, 20.0, 1.0
"""Observations that the noise of all choices counts as in that of each, and each at most in that of
all; log-likelihood that noise in milliseconds must gain over noise as a share."""

REPEATED, EVIDENCE = 1.5, 4.0
"""Observations of a choice that must have more than this to speak against the line, and the
log-likelihood that a spread must gain over none: no line is given up for an accident."""

FAR_ABOVE = 3.0
"""Times what a line expects that an average may take before the line says nothing of its noise."""

RENEWED = 1.05
"""Growth of what is known of a part after which its choices are looked into anew."""

SUSPECTED, SUSPICIONS = 0.1, 3.0
"""The spread of the choices that is reckoned with before any of them has spoken, a share of
latency, and how many choices have to say otherwise."""

LEAST_SPREAD = 0.01
"""No line fits better than this."""

PRECISE, DOUBTS = 0.1, 4.0
"""Standard error up to which a device tells how far its pace is from 1, squared; and how many times
its variance is taken off: what is within two standard errors speaks for being alike."""

ALIKE, LEAST_UNLIKE, MOST_UNLIKE = 3.0, 0.003, 0.5
"""Observations that the spread of devices which the policy assumes counts as, and the least and the
most that is believed."""


# --- observe -------------------------------------------------------------------------------------


def note_choice(
    holders: Array, state: LearnerState, device: int, part: int, choice: int, latency: float
) -> None:
    """Add an observation to the sums of its choice, `local` or `startling`, over the divisor.
    Averages are of one size of the input alone, the largest: at others a choice deviates by the
    same share."""
    if state.choices.largest[0]:
        sums, paced = holders[device, part], latency / float(state.physics.divisor[device, part])
        sums[0, choice] += 1.0
        sums[1, choice] += paced
        sums[2, choice] += paced * paced
        unlike, telling = state.physics.unlike[device, part]
        if telling > 0.0:
            sums[3, choice] += unlike
            sums[4, choice] += telling


def note_own(
    state: LearnerState, device: int, part: int, choice: int, latency: float, worth: float
) -> None:
    """The same for what a device keeps of its own, as `observing.remember` has it."""
    if state.choices.largest[0]:
        sums = state.choices.own[device, part]
        sums[0, choice] += worth
        sums[1, choice] += worth * latency
        sums[2, choice] += worth * latency * latency


# --- estimate ------------------------------------------------------------------------------------


def differing(state: LearnerState, device: int, part: int, assumed: float) -> float:
    """How much the devices of a pool differ, a share of latency: what they tell each other of it,
    beside what is assumed.

    A device that takes its own noise for a pace chooses by it, and tells what it measures over it:
    whoever believes to be fast plays what fast devices play, and tells that it takes long. In a
    fleet of equals that is never contradicted; so only what is beyond noise counts as a pace.
    """
    sums = state.choices.synced[device, part, 3:] + state.choices.local[device, part, 3:]
    unlike = (ALIKE * assumed * assumed + sums[0].sum()) / (ALIKE + sums[1].sum())
    return sqrt(min(max(unlike, LEAST_UNLIKE**2), MOST_UNLIKE**2))


def note_unlike(state: LearnerState, device: int, part: int, pace: float, precision: float) -> None:
    """What a device tells of its pace, known with so much precision (1 / variance): nothing while
    that is too little."""
    unlike = state.physics.unlike[device, part]
    unlike[:] = 0.0
    if precision * PRECISE * PRECISE >= 1.0:
        unlike[0] = min((pace - 1.0) ** 2, MOST_UNLIKE**2) - DOUBTS / precision
        unlike[1] = 1.0


def share(mean: Array) -> Array:
    """The weight of an observation where this is expected: `observing.importance`."""
    result: Array = FLOOR_MS * FLOOR_MS / (FLOOR_MS * FLOOR_MS + mean * mean)
    return result


def weighted(sums: Array, level: Array) -> Array:
    """Sums of every choice with the weights that its observations have where this is expected."""
    result: Array = sums * share(level)
    return result


def reference_of(seen: Array, mean: Array) -> Array:
    """The latency that noise is a share of: what the line expects of a choice, but no less than a
    third of its average. Where a line says next to nothing of a server that has become slow, its
    usual scatter would otherwise be taken for noise that nothing can stand out from."""
    average = seen[1] / np.where(seen[0] > 0.0, seen[0], 1.0)
    result: Array = np.maximum(mean, average / FAR_ABOVE)
    return result


def scattered(seen: Array, variance: float) -> Array:
    """Noise variance of every choice that residuals are judged by: how its observations scatter
    about their average and, where they are few, how those of all choices do, but no less than the
    line says; `seen` are the sums of every choice, `variance` is that of the line.

    What was observed before anything was expected is weighted by the latency itself, so that what
    happened to be slow hardly counts: where noise is no share of latency a line drawn through it
    takes everything else for a surprise. And where noise is a share, down to nothing, choices that
    take next to no time make it look small.
    """
    average = seen[1] / np.where(seen[0] > 0.0, seen[0], 1.0)
    squares, freedom = about_averages(seen, average)
    common = common_noise(squares, freedom, variance)
    result: Array = np.maximum(
        (squares + OBSERVATIONS * common) / (freedom + OBSERVATIONS), variance
    )
    return result


def about_averages(seen: Array, average: Array) -> tuple[Array, Array]:
    """Squares of how the observations of every choice scatter about their average, weighted, and
    how many of them are free to."""
    squares = share(average) * np.maximum(seen[2] - seen[1] * average, 0.0)
    return squares, np.maximum(seen[0] - 1.0, 0.0)


def common_noise(squares: Array, freedom: Array, variance: float) -> float:
    """Noise variance of all choices alike, the line's counting as two observations."""
    return float((squares.sum() + 2.0 * variance) / (freedom.sum() + 2.0))


def noise_of(sums: Array, level: Array, prior: float) -> tuple[Array, float]:
    """Noise variance of every choice, and of all observations alike; `sums` are `weighted`.

    It is read off how the observations of a choice scatter and, where they are few, off how those
    of all choices do: as a share of latency, or in milliseconds if that is likelier. There none
    counts for more than `COUNTED`: what is played most must not speak for what is not.
    """
    weight, worth = np.where(sums[0] > 0.0, sums[0], 1.0), share(level)
    squares = np.maximum(sums[2] - sums[1] * sums[1] / weight, 0.0)
    freedom = np.maximum(sums[0] / worth - 1.0, 0.0)
    variance = (squares.sum() + prior) / (freedom.sum() + 2.0)
    if variance <= 0.0 or sums[0].sum() <= 0.0:
        return np.zeros_like(level), 0.0
    counted = COUNTED / np.maximum(freedom, COUNTED)
    known = (counted * freedom).sum() + 2.0
    relative = ((counted * squares).sum() + prior) / known
    usual = sums[0].sum() / (sums[0] / worth).sum()
    fixed = worth * (((counted * squares / worth).sum() + prior / usual) / known)
    gain = counted * (freedom * np.log(relative / fixed) + squares / relative - squares / fixed)
    common = np.full_like(level, relative)
    if 0.5 * gain.sum() > LIKELIER:
        common = np.maximum(common, fixed)
    result: Array = (squares + OBSERVATIONS * common) / (freedom + OBSERVATIONS)
    return result, float(variance)


def spread_of(
    sums: Array, mean: Array, level: Array, norm: Array, variance: Array, every: float
) -> float:
    """The spread of the choices about their line, a share of latency: the likeliest of `SPREADS`,
    or 0 if the evidence for it is weak; `variance` and `every` are `noise_of`.

    A choice that the line was drawn through (leverage near 1) says nothing about it. An average
    below zero is noise as far as it is. Nor is one
    less noisy than all are because a few observations of it happen to agree; and noise that is
    known from few observations is Student's.
    """
    if variance.min() <= 0.0:
        return 0.0
    worth = share(level)
    seen = sums[0] >= REPEATED * worth
    weight = np.where(seen, sums[0], 1.0)
    noise = np.maximum(variance, every) * worth / weight
    freedom = np.maximum(sums[0] / worth - 1.0, 0.0).sum() + 2.0
    left = np.where(seen, 1.0 - np.minimum(sums[0] * norm * norm, 1.0), 0.0)
    left = np.where(left < 0.01, 0.0, left)
    apart = (np.maximum(sums[1] / weight, 0.0) - mean) ** 2 * worth
    return likeliest_spread(apart, noise, FLOOR_MS, left, freedom)


def likeliest_spread(apart: Array, noise: Array, unit: float, left: Array, freedom: float) -> float:
    """The likeliest of `SPREADS`, or 0 if the evidence is weak: `apart` are squared distances of
    averages from what was expected, `noise` their variance without a spread, `unit` what a spread
    of 1 is on their scale, `left` the share of each that counts, `freedom` that of the noise."""
    best, found = EVIDENCE, 0.0
    for spread in SPREADS:
        prior = (unit * spread) ** 2
        odd, usual = apart / (freedom * noise), apart / (freedom * (prior + noise))
        gain = (freedom + 1.0) * np.log((1.0 + odd) / (1.0 + usual))
        gain = gain - left * np.log(1.0 + prior / noise)
        likelihood = 0.5 * np.where(left > 0.0, gain, 0.0).sum()
        if likelihood > best:
            best, found = likelihood, spread
    return float(found)


def unexplained(sums: Array, level: Array, spread: float, variance: Array) -> Array:
    """Of every choice, the share of its average's distance from the line that is noise: 1 if it was
    never seen."""
    noise = variance * share(level)
    result: Array = noise / (noise + (FLOOR_MS * spread) ** 2 * sums[0])
    return result


def without_repeats(rows: Array, sums: Array, noise: Array) -> tuple[Array, Array]:
    """Sigma and b of the line with all observations of a choice worth no more than its deviation
    leaves open, `noise` being `unexplained`."""
    worth = (noise * sums[0]).reshape(-1, 1)
    weighted = rows * worth
    b: Array = (rows * (noise * sums[1]).reshape(-1, 1)).sum(axis=0)
    sigma = np.zeros((rows.shape[1], rows.shape[1]))
    for column in range(rows.shape[1]):
        sigma[column] = (weighted * rows[:, column].copy().reshape(-1, 1)).sum(axis=0)
    return sigma, b


def deviations(sums: Array, mean: Array, noise: Array) -> Array:
    """What to add to the line for every choice, in milliseconds."""
    weight = np.where(sums[0] > 0.0, sums[0], 1.0)
    result: Array = np.where(sums[0] > 0.0, (sums[1] / weight - mean) * (1.0 - noise), 0.0)
    return result


def doubt(level: Array, norm: Array, noise: Array, spread: float, variance: float) -> Array:
    """Standard deviation of line and deviation together, of every choice, in milliseconds."""
    open_ = (FLOOR_MS * spread) ** 2 * noise / share(level)
    result: Array = np.sqrt(open_ + variance * (noise * norm) ** 2)
    return result


def is_due(state: LearnerState, device: int, part: int) -> bool:
    """Whether so much was learned of a part since its choices were last looked into that they are
    looked into now: a twentieth more, or something far slower than expected."""
    tested = state.choices.tested[device, part]
    now = observed(state, device, part)
    if tested <= now <= RENEWED * tested + 1.0:
        return False
    state.choices.tested[device, part] = now
    return True


# --- select --------------------------------------------------------------------------------------


def deviates(state: LearnerState, device: int) -> bool:
    """Whether choices of some part deviate from their line, or the device from its pool."""
    choices = state.choices
    return bool(choices.spread[device].max() > 0.0 or choices.personal[device].max() > 0.0)


def mature(state: LearnerState, device: int, beyond: float) -> bool:
    """Whether the lines of front-end and server were drawn through so many observations beyond one
    per feature: one drawn through a few milliseconds of hardly any work says that all work takes
    for ever."""
    for part in range(state.rows.shape[0]):
        known = state.synced[device, part, -2]
        if state.choices.suspect[part] and known < state.dimension[part] + beyond:
            return False
    return True


def suspicion(state: LearnerState, device: int, part: int) -> float:
    """The spread of the choices about their line that has to be reckoned with, a share of latency:
    the one that was found or, while the line seems to fit, what the choices seen so far leave of
    `SUSPECTED`. Each of them says as much as its observations tell its deviation from noise."""
    choices, size = state.choices, state.dimension[part]
    if choices.spread[device, part] > 0.0:
        return float(choices.spread[device, part])
    rows, seen = choices.rows[part], choices.synced[device, part] + choices.local[device, part]
    line = times(rows, state.physics.theta[device, part] / state.physics.pace[device, part])
    sums, worth = weighted(seen, line), share(line)
    known = sums[0] >= worth
    weight = np.where(known, sums[0], 1.0)
    variance = state.physics.deviation[device, part] ** 2
    noise = variance * worth / weight
    columns = rows[:, :size].T.copy()
    norm = norms(state.physics.root[device, part, :size, :size].copy(), columns)
    left = np.where(known, 1.0 - np.minimum(sums[0] * norm * norm, 1.0), 0.0)
    prior = (FLOOR_MS * SUSPECTED) ** 2
    said = left * (prior / (prior + noise)) ** 2
    apart = (np.maximum(sums[1] / weight, 0.0) - line) ** 2 * worth
    total = SUSPICIONS * prior + (said * (apart - noise)).sum()
    square = total / (SUSPICIONS + said.sum()) / (FLOOR_MS * FLOOR_MS)
    return float(np.sqrt(min(max(square, 0.0), LARGEST * LARGEST)))
