"""What policy `cans` makes of a measured latency: sums, surprises, and signs of a change.

An observation counts by how noisy it must be expected to be, the more so the longer it takes. One
that is far off is told at once, and what is off again and again, in one direction, says that
something has changed: a pool starts anew, or a device finds that it is unlike its pool.

The rules of `linear.py` hold: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

from math import log1p, sqrt

from cans.learning.arithmetic.arrays import ANEW, INSISTENCE, MATURE, Array, LearnerState
from cans.learning.arithmetic.by_choice.counts import observed, observed_itself
from cans.learning.arithmetic.by_choice.deviations import FLOOR_MS, note_choice, note_own

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
again is at odds with its pool, and nobody else is near to contradict it. Who is all but alone in
its pool is at odds with nobody."""

SLOWER, FASTER = (6.0, 2.0, 11.0), (4.0, 1.0, 8.0)
"""Clip, drift and alarm level of the cumulative sum of standardised residuals in each direction:
three observations far off sound it, one liar among honest devices never does. A busy machine is
slower for a second or so in all that it is asked, which is no change that would last; it is never
faster."""

RECENT = 3.0
"""Observations of one upload that the drift counts at most."""

LITTLE, NOTABLE = 0.01, 3.0
"""One observation of a hundred changes hardly any estimate: those of a device that has more wait
for each other, unless one has a standardised residual beyond this."""


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
    surprising = abs(rarity) > SURPRISING
    others = observed(state, device, part) - observed_itself(state, device, part)
    if surprising and (credit >= 1.0 or others < MATURE):
        credit = max(credit - 1.0, 0.0)
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
        physics.dropped[device, part] += physics.own[device, part, -1]
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
