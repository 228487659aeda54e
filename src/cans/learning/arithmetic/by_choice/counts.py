"""How much was observed of a part: by this device, and by all of its pool.

The rules of `linear.py` hold: arrays in, arrays out, the subset of NumPy that numba compiles.
"""

from __future__ import annotations

from cans.learning.arithmetic.arrays import LearnerState


def observed(state: LearnerState, device: int, part: int) -> float:
    """Observations of a part, this device's and others'."""
    return float(state.synced[device, part, -1] + state.local[device, part, -1])


def share_of_others(state: LearnerState, device: int, part: int) -> float:
    """Of all observations that a pool, as far as this device knows, was told or will be, how many
    are others'."""
    known = observed(state, device, part)
    return max(known - observed_itself(state, device, part), 0.0) / max(known, 1.0)


def observed_itself(state: LearnerState, device: int, part: int) -> float:
    """Observations of a part that the device made since the pool last started anew, those that no
    longer count among its own included."""
    return float(state.physics.own[device, part, -1] + state.physics.dropped[device, part])


def most_observed(state: LearnerState, device: int) -> float:
    """Of front-end or server, whichever was observed more often: about as many inferences were
    made."""
    most = 0.0
    for part in range(state.rows.shape[0]):
        if state.choices.suspect[part]:
            most = max(most, observed(state, device, part))
    return most


def most_observed_itself(state: LearnerState, device: int) -> float:
    """The same, of what the device has observed itself."""
    most = 0.0
    for part in range(state.rows.shape[0]):
        if state.choices.suspect[part]:
            most = max(most, float(state.physics.own[device, part, -1]))
    return most
