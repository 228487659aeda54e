"""Choices that are not made, whatever they might tell: they could take several times the best.

The rules of `linear.py` hold: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import MATURE, Array, BoolArray, LearnerState
from cans.learning.arithmetic.by_choice.deviations import REPEATED, share
from cans.learning.arithmetic.linear import over_parts

TOO_MUCH = 3.0
"""Times the best latency that a choice may take, one standard deviation included, to be tried."""

EXTRAPOLATED = 100.0
"""Times the variance of one observation: what is more uncertain was never observed at all."""

UNSEEN = 1e-3
"""Squared distance, in scaled features, from everything that was ever observed of a link: beyond
that the ridge alone speaks for a choice, by which it may take any time at all."""

SURELY = 3.0
"""Standard errors by which a choice must have been slower than that not to be tried again."""


def note_slow(state: LearnerState, device: int) -> None:
    """What was seen of every choice, and what it surely takes; 0 if that is not known."""
    choices = state.choices
    seen, error = np.zeros(state.rows.shape[1]), np.zeros(state.rows.shape[1])
    for part in range(state.rows.shape[0]):
        tested = state.synced[device, part, -2] >= state.dimension[part] + MATURE
        if choices.bends[part] and tested and choices.largest[0]:
            sums = choices.synced[device, part] + choices.local[device, part]
            known = sums[0] >= REPEATED
            weight = np.where(known, sums[0], 1.0)
            average = sums[1] / weight * state.physics.pace[device, part]
            variance = state.physics.deviation[device, part] ** 2 / share(average) / weight
            seen = seen + np.where(known, average, 0.0)
            error = error + np.where(known, variance, 0.0)
    choices.seen[device] = seen
    choices.least[device] = np.maximum(seen - SURELY * np.sqrt(error), 0.0)


def affordable(state: LearnerState, device: int, mean: Array, best: int) -> BoolArray:
    """Choices that do not take more than `TOO_MUCH` times what the best one does at most, one
    standard deviation each; none of a link where nothing like it was ever observed. Where no
    exchanges are timed, somebody has to try it."""
    width = state.choices.width[device]
    variance = width * width
    for part in range(variance.shape[0]):
        if part != state.physics.front_part and part != state.physics.server_part:
            unseen = state.ridge * state.norm[device, part] ** 2 > UNSEEN
            variance[part] = np.where(unseen, 0.0, variance[part])
    high = mean + np.sqrt(over_parts(variance))
    result: BoolArray = high <= TOO_MUCH * high[best]
    return result


def too_slow(state: LearnerState, device: int, charge: Array, best: float) -> BoolArray:
    """Choices that were surely seen to take more than `TOO_MUCH` times the best: whatever a line
    says of them, they are not tried again. `charge` comes on top of each."""
    least = state.choices.least[device]
    result: BoolArray = (least > 0.0) & (least + charge > TOO_MUCH * best)
    return result


def too_far(state: LearnerState, device: int, mean: Array, barred: Array) -> BoolArray:
    """Choices that may take, one standard deviation included, `TOO_MUCH` times as long until they
    reach the server alone as the surest choice is expected to take in all: a link is not tried
    because it is uncertain. Exchanges that are timed for their own sake say more about it, at less
    cost. Where there are none, and nothing is known of it at all, somebody has to try."""
    physics = state.physics
    front, server = physics.front_part, physics.server_part
    if front < 0:
        return np.zeros(mean.shape[0], dtype=np.bool_)
    variance = state.choices.width[device] ** 2
    surest = (mean + np.sqrt(over_parts(variance)) + barred).argmin()
    way = over_parts(state.mean[device]) - state.mean[device, server]
    open_ = np.zeros_like(mean)
    for part in range(state.rows.shape[0]):
        if part != front and part != server:
            leverage = state.norm[device, part] ** 2 * share(state.mean[device, part])
            open_ = open_ + np.where(leverage <= EXTRAPOLATED, variance[part], 0.0)
    far: BoolArray = way + np.sqrt(open_) > TOO_MUCH * mean[surest]
    far[surest] = False
    return far
