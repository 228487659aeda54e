"""From estimates to the score of every choice: what could be best, and what is not even tried."""

from __future__ import annotations

from math import sqrt

import numpy as np

from cans.learning.arithmetic.arrays import ANEW, Array, BoolArray, LearnerState
from cans.learning.arithmetic.by_choice.barring import TOO_MUCH, affordable, too_far, too_slow
from cans.learning.arithmetic.by_choice.bending import look_into_choices
from cans.learning.arithmetic.by_choice.counts import most_observed, most_observed_itself
from cans.learning.arithmetic.by_choice.deviations import deviates
from cans.learning.arithmetic.estimating import (
    compute_root,
    estimate_physically,
    predict,
    update_roots,
)
from cans.learning.arithmetic.linear import over_parts

TIE_BREAK = 0.01
"""Where the lower confidence bounds cannot tell (both are zero, say), the means do."""

HOPEFUL, HARDLY_SEEN = 100.0, 3.0
"""Observations up to which bounds count in full, and observations of one choice up to which they
always do: a first impression may be bad luck."""

SETTLED_IN = 15.0
"""Observations of its own, offline runs included, with which a device counts its bounds in full
where choices deviate; before that in proportion."""

WORTH_TRYING, WELL_KNOWN = 0.1, 0.2
"""A choice that was left out is tried if it may save a tenth of the best one's latency, once the
best one is known to a fifth, unless it could cost `TOO_MUCH`."""


def refresh(state: LearnerState, device: int) -> bool:
    """Before a choice: estimate and score anew, if something of weight has changed since last time;
    returns whether it has.
    All parts go through it together: a few large operations take less time than many small ones."""
    physics = state.physics
    if np.count_nonzero(physics.stale[device]) == 0:
        return False
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
    return True


def charged_scores(state: LearnerState, device: int, charge: Array, allowed: BoolArray) -> Array:
    """Lower confidence bound of the latency of every choice that is allowed and can win at all;
    infinite for the others.

    Choices are left out on the assumption that the server is the faster machine. When the
    estimates say otherwise (it is overloaded), every choice is back; one alone is where they leave
    room for it: the server may be slower in one class of work. `charge` is known and comes on
    top of each choice: waiting, and tolls.
    """
    physics = state.physics
    learned = over_parts(state.mean[device])
    low, mean = lower_bounds(state, device) + charge, learned + charge
    scores: Array = low + TIE_BREAK * learned
    front, server = physics.front_part, physics.server_part
    offered, barred = physics.offered & allowed, physics.barred
    if np.count_nonzero(physics.offered > offered) > 0:
        barred = barred_among(state, offered)
    if front >= 0:
        on_device, on_server = state.mean[device, front, -1], state.mean[device, server, 0]
        if on_server + charge[0] > on_device:
            barred = np.where(offered, 0.0, np.inf)
        else:
            barred = barred_still(state, device, low, mean, barred, offered)
    if state.choices.used:
        if deviates(state, device):
            best = int(np.where(offered, mean, np.inf).argmin())
            considered = offered & affordable(state, device, mean, best)
            barred = np.where(considered, 0.0, np.inf)
        barred = np.where(too_far(state, device, mean, barred), np.inf, barred)
        expected = np.maximum(mean, state.choices.seen[device] + charge) + barred
        slow = too_slow(state, device, charge, float(expected.min()))
        barred = np.where(slow, np.inf, barred)  # the surest choice is not far, nor the best slow
    result: Array = scores + barred
    return result


def barred_among(state: LearnerState, offered: BoolArray) -> Array:
    """Infinite for the choices that are not among these or beaten by one of them, zero for the
    others: what only a choice that must not be made would beat may be the best that is left."""
    physics = state.physics
    beating = np.where(physics.beaten & offered, 1.0, 0.0).sum(axis=1)
    beating[0] = beating[-1] = 0.0
    result: Array = np.where(offered & (beating == 0.0), 0.0, np.inf)
    return result


def lower_bounds(state: LearnerState, device: int) -> Array:
    """Lower confidence bound of the latency of every choice, over all parts.

    Where lines fit, the parts' bounds are added up, as in Eq. 3. Where choices deviate, what is
    open of the front-end of a choice has nothing to do with what is open of its back-end: variances
    are added up. What physics says beyond the mean counts in full.
    """
    physics = state.physics
    if not state.choices.used:
        return over_parts(physics.low[device])
    below = np.maximum(state.mean[device] - physics.low[device], 0.0)
    hoped = hope(state, device) * below
    expected, bounds = over_parts(physics.low[device] + below), over_parts(hoped)
    if deviates(state, device):
        bounds = np.sqrt(over_parts(hoped * hoped))
    result: Array = expected - bounds
    return result


def hope(state: LearnerState, device: int) -> Array:
    """(parts, choices) how much of the distance to its lower bound counts in favour of a choice:
    all of it where it was hardly seen, or while little was observed; after that less and less.

    To be sure which of twenty choices within a few per cent of each other is best takes some
    hundred observations of each. Bounds would pay for that whatever it gains; looks weigh it.
    Where choices deviate, so many are uncertain at first that devices that begin together would
    all pay to explore what the first few of them tell the others a moment later.
    """
    known = max(most_observed(state, device), HOPEFUL)
    seen = state.choices.synced[device, :, 0] + state.choices.local[device, :, 0]
    share: Array = np.where(seen <= HARDLY_SEEN, 1.0, sqrt(HOPEFUL / known))
    if deviates(state, device):
        share *= min(most_observed_itself(state, device) / SETTLED_IN, 1.0)
    return share


def barred_still(
    state: LearnerState, device: int, low: Array, mean: Array, barred: Array, offered: BoolArray
) -> Array:
    """Infinite for choices that are left out, zero for the others. The estimates speak for one that
    was left out if its upper confidence bound is below the best of the others, and, once that best
    one is known, if it may save a tenth of it. Never for one that is expected to cost three times
    as much, where its back-end is taken to last as long as all of the model does on the server: it
    does not last longer.
    """
    physics = state.physics
    viable = mean + barred
    best = viable.argmin()
    limit = float(viable[best])
    left_out = offered & (barred > 0.0)
    if np.count_nonzero(left_out & (np.minimum(low, mean) < limit)) == 0:
        return barred
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
    result: Array = np.where(offered & better, 0.0, barred)
    return result


def physical_scores(state: LearnerState, device: int) -> Array:
    """The scores of all choices where nobody waits."""
    nothing = np.zeros(state.rows.shape[1])
    return charged_scores(state, device, nothing, state.physics.offered)
