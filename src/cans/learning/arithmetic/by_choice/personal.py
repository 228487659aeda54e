"""Choices that take one device longer, or less long, than its pool expects.

A pool says what a choice takes the average of its devices, and a device's pace is one factor of all
choices. What is left is the device's own: another radio on the same network, another driver in a
group of one speed. So its own averages are compared with what the pool expects of it. As with the
deviations of a pool, how far they are apart by nature is read off how far they are beyond noise:
zero without evidence, and then nothing changes. What only this device has measured is said of it
alone; it is in no pool.

The rules of `linear.py` hold: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import LearnerState
from cans.learning.arithmetic.by_choice.counts import share_of_others
from cans.learning.arithmetic.by_choice.deviations import REPEATED, likeliest_spread, share


def individualise(state: LearnerState, device: int, part: int, due: bool) -> None:
    """Replace what the pool leads to expect of every choice by what this device may expect; `due`:
    how far it differs by choice is estimated anew."""
    choices = state.choices
    if choices.largest[0] and (due or choices.personal[device, part] > 0.0):
        compare(state, device, part, due)
    if choices.personal[device, part] > 0.0:
        mean = state.mean[device, part] * choices.factor[device, part]
        width = choices.unsure[device, part] * mean
        state.mean[device, part], choices.width[device, part] = mean, width
        state.physics.low[device, part] = np.maximum(mean - state.physics.kappa * width, 0.0)


def compare(state: LearnerState, device: int, part: int, due: bool) -> None:
    """What every choice takes this device as a multiple of what its pool expects: its own average,
    as far as that tells a difference from noise; and the standard deviation of that."""
    choices, own = state.choices, state.choices.own[device, part]
    mean, scatter = state.mean[device, part], choices.scatter[device, part]
    seen = (own[0] >= REPEATED) & (mean > 0.0) & (scatter > 0.0)
    if share_of_others(state, device, part) == 0.0 or np.count_nonzero(seen) == 0:
        choices.personal[device, part] = 0.0
        return
    scale, number = np.where(mean > 0.0, mean, 1.0), np.where(seen, own[0], 1.0)
    apart = np.where(seen, own[1] / number / scale - 1.0, 0.0)
    noise = np.where(seen, scatter**2 / share(mean) / number / (scale * scale), 1.0)
    open_ = (choices.width[device, part] / scale) ** 2  # of what the pool expects
    if due:
        every = choices.synced[device, part, 0] + choices.local[device, part, 0]
        freedom = np.maximum(every - 1.0, 0.0).sum() + 2.0
        counted = np.where(seen, 1.0, 0.0)
        choices.personal[device, part] = likeliest_spread(
            apart * apart, noise + open_, 1.0, counted, freedom
        )
    prior = open_ + choices.personal[device, part] ** 2
    gain = np.where(seen, prior / (prior + noise), 0.0)
    choices.factor[device, part] = 1.0 + gain * apart
    choices.unsure[device, part] = np.sqrt(prior * (1.0 - gain))
