"""Parts that a device leaves next to nothing to do.

A device that becomes slow sends its raw inputs from then on, which says nothing of its front-end;
when a server becomes slow, everybody stays local. Neither would ever be found to be well again, nor
to have become faster. So beside an answer, for which nobody waits any more, an idle part is put to
work for its own sake now and then: the device runs the whole model, or the server gets a raw input.

The rules of `linear.py` hold: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, LearnerState
from cans.learning.arithmetic.linear import over_parts

MOST_WORK = 0.5
"""Who does this share of the model is known to do the rest as it does this."""

SELDOM = 10.0
"""A part that is known, and was never found to have changed, is tried after this many times as
long."""


def hardly_for_server(rows: Array) -> BoolArray:
    """Choices that leave the server so little that its time says nothing of the rest: less than
    half, of some kind of work, of what the raw input does."""
    result: BoolArray = (rows < MOST_WORK * rows[0]).any(axis=1) | ~rows.any(axis=1)
    return result


def hardly_for_device(rows: Array) -> BoolArray:
    """Choices that leave the device so little that its time says nothing of the rest: less than
    half, of every kind of work, of what the whole model does."""
    most = (rows >= MOST_WORK * rows[-1]) & (rows[-1] > 0.0)
    result: BoolArray = ~most.any(axis=1)
    return result


def note_run(state: LearnerState, device: int, choice: int, time: float) -> None:
    """A device has run its part of this choice."""
    physics = state.physics
    if physics.used and physics.front_part >= 0 and not physics.idle_device[choice]:
        physics.ran[device] = max(time, physics.ran[device])


def wants_own_run(state: LearnerState, device: int, choice: int, time: float, every: float) -> bool:
    """Whether a device that has made this choice should run the whole model for its own sake: it
    has seen next to nothing of its front-end for so long, if little is known of that, and much
    longer otherwise."""
    physics, part = state.physics, state.physics.front_part
    if not physics.used or part < 0 or not physics.idle_device[choice]:
        return False
    soon = little_is_known(state, device, part) or physics.apart[device, part]
    return bool(time - physics.ran[device] > (every if soon else SELDOM * every))


def wants_server_run(
    state: LearnerState, device: int, choice: int, worked: float, time: float, every: float
) -> bool:
    """The same of the server, which last did most of the work for anybody when it `worked`."""
    physics, part = state.physics, state.physics.server_part
    if not physics.used or part < 0 or not physics.idle_server[choice]:
        return False
    soon = little_is_known(state, device, part)
    return bool(time - worked > (every if soon else SELDOM * every))


def little_is_known(state: LearnerState, device: int, part: int) -> bool:
    """Whether a pool has changed, and may change back, or is so young that no choice can be told
    from its line."""
    known = state.synced[device, part, -2]
    return bool(state.epoch[device, part] > 0 or known < state.dimension[part] + state.young)


def soonest_at_server(state: LearnerState, device: int, part: int, raw: BoolArray) -> int:
    """The one of these choices that is at the server soonest, by the last estimate. What the server
    takes for it has no say in that: it is what is in doubt. `part` is the server's."""
    way = over_parts(state.mean[device]) - state.mean[device, part]
    return int(np.where(raw, way, np.inf).argmin())
