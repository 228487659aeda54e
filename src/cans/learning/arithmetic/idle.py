"""Parts that were found to have changed and that a device leaves next to nothing to do since.

A device that becomes slow sends its raw inputs from then on, which says nothing of its front-end;
when a server becomes slow, everybody stays local. Neither would ever be found to be well again. So
beside an answer, for which nobody waits any more, the idle part is put to work for its own sake now
and then: the device runs the whole model, or the server gets the raw input.

The rules of `linear.py` hold: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import BoolArray, LearnerState
from cans.learning.arithmetic.linear import over_parts

MOST_WORK = 0.5
"""Who does this share of the model is known to do the rest as it does this."""


def tells_little_of_server(state: LearnerState, part: int, choice: int) -> bool:
    """Whether a choice leaves the server so little that its time says nothing of the rest: less
    than half, of some kind of work, of what the raw input does. `part` is the server's."""
    rows = state.rows[part]
    light = bool((rows[choice] < MOST_WORK * rows[0]).any())
    return light or not state.informative[part, choice]


def tells_little_of_device(state: LearnerState, choice: int) -> bool:
    """Whether a choice leaves the device so little that its time says nothing of the rest: less
    than half, of every kind of work, of what the whole model does."""
    rows = state.rows[state.physics.front_part]
    most = rows[choice] >= MOST_WORK * rows[-1]
    return not bool((most & (rows[-1] > 0.0)).any())


def wants_own_run(state: LearnerState, device: int, choice: int, time: float, every: float) -> bool:
    """Whether a device that has made this choice should run the whole model for its own sake: its
    front-end was found to have changed, and it has seen next to nothing of it for so long."""
    if not device_changed(state, device) or time - state.physics.ran[device] <= every:
        return False
    return tells_little_of_device(state, choice)


def note_run(state: LearnerState, device: int, choice: int, time: float) -> None:
    """A device has run its part of this choice."""
    if device_changed(state, device) and not tells_little_of_device(state, choice):
        state.physics.ran[device] = max(time, state.physics.ran[device])


def device_changed(state: LearnerState, device: int) -> bool:
    """Whether the front-end's pool, or this device alone, was found to have changed."""
    physics = state.physics
    if not physics.used or physics.front_part < 0:
        return False
    part = physics.front_part
    return bool(state.epoch[device, part] > 0 or physics.apart[device, part])


def wants_server_run(
    state: LearnerState, device: int, choice: int, worked: float, time: float, every: float
) -> bool:
    """Whether a device that has made this choice should have the server do all the work for its own
    sake: the server was found to have changed, and `worked` is when it last did most of the work
    for anybody, longer ago than that."""
    part = state.physics.server_part
    if not state.physics.used or part < 0 or time - worked <= every:
        return False
    return bool(state.epoch[device, part] > 0) and tells_little_of_server(state, part, choice)


def soonest_at_server(state: LearnerState, device: int, raw: BoolArray) -> int:
    """The one of these choices that is at the server soonest, by the last estimate. What the server
    takes for it has no say in that: it is what is in doubt."""
    way = over_parts(state.mean[device]) - state.mean[device, state.physics.server_part]
    return int(np.where(raw & state.physics.offered, way, np.inf).argmin())
