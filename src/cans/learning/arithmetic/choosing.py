"""From what is known to a choice: scores, constraints, forced sampling; each rule once, as arrays.

`DeviceLearner.select` and the compiled engine call these functions.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, LearnerState
from cans.learning.arithmetic.by_choice.looks import look
from cans.learning.arithmetic.linear import lowest, optimistic, sampled
from cans.learning.arithmetic.scoring import charged_scores, refresh

OPTIMISTIC, SAMPLED, UNIFORM, LOCAL, OFFLOAD = range(5)
"""The members of `policies.Choose`, in its order, as compiled code knows them."""

LARGE = 1e300
"""Score of a choice that is allowed though it cannot win: better than that of a forbidden one."""


def learned_scores(
    state: LearnerState,
    device: int,
    how: int,
    weight: float,
    normals: Array,
    allowed: BoolArray,
    restricted: bool,
) -> Array:
    """The score of every choice by what was learned, in ms: the lowest is chosen (Eq. 3)."""
    if how == SAMPLED:
        return sampled(state, device, normals)
    if state.physics.used:
        refresh(state, device)
        scores: Array = state.physics.scores[device]
        if restricted and leaves_out(state, allowed):
            scores = charged_scores(state, device, np.zeros_like(scores), allowed)
        return scores
    return optimistic(state.mean[device], state.norm[device], state.radius[device], weight)


def leaves_out(state: LearnerState, allowed: BoolArray) -> bool:
    """Whether something must not be chosen now that may be at other times."""
    return bool(np.count_nonzero(state.physics.offered > allowed) > 0)


def choose_lowest(
    scores: Array, allowed: BoolArray, restricted: bool, not_local: bool
) -> tuple[int, bool]:
    """The allowed choice of the lowest score, and whether it was a tie. The local choice, the last
    one, is left out if `not_local`, unless it is the only one allowed."""
    if restricted:
        scores = np.where(allowed, np.minimum(scores, LARGE), np.inf)
    if not_local and (not restricted or allowed[:-1].any()):
        scores = scores.copy()
        scores[-1] = np.inf
    return lowest(scores)


def glance(
    state: LearnerState, device: int, pick: int, allowed: BoolArray, restricted: bool, charge: Array
) -> int:
    """`pick`, or now and then an allowed choice near it that may be better than it looks; `charge`
    comes on top of each."""
    if not state.choices.used:
        return pick
    return look(state, device, pick, charge, allowed if restricted else state.physics.offered)


def choose_blindly(how: int, allowed: BoolArray, uniform: float) -> int:
    """The choice of a policy that looks at nothing: the first, the last, or any allowed one."""
    count = int(allowed.sum())
    if how == LOCAL:
        return nth_allowed(allowed, count - 1)
    if how == OFFLOAD:
        return nth_allowed(allowed, 0)
    return nth_allowed(allowed, int(uniform * count))


def nth_allowed(allowed: BoolArray, n: int) -> int:
    """The choice that is the n-th allowed one."""
    for choice in range(allowed.shape[0]):
        if allowed[choice]:
            if n == 0:
                return choice
            n -= 1
    return int(allowed.shape[0] - 1)


def must_not_stay_local(frame: int) -> bool:
    """ANS's forced sampling: every ceil(T^(1/4)) frames, T = 200 doubling as frames pass it."""
    horizon = 200
    while horizon < frame:
        horizon *= 2
    return frame % int(np.ceil(horizon**0.25)) == 0
