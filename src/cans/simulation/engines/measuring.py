"""What the world of a compiled run takes, and what is measured of it: milliseconds from arrays.

In the subset of NumPy that numba compiles.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.simulation.engines.fleet_arrays import Rules, Truth
from cans.simulation.worlds.episode import Episode


def place_at(truth: Truth, episode: Episode, t: int) -> int:
    """Where the active device is in this round."""
    place: int = truth.place_of[episode.active[t]] + episode.moved[t]
    return place


def profiled_ms(truth: Truth, rules: Rules, place: int) -> Array:
    """What a policy knows beforehand of every choice, of the segments that it does know: a profile,
    which is older than any change."""
    known, knows = np.zeros(truth.front_ms.shape[1]), rules.knows
    if knows.any():
        for choice in range(known.shape[0]):
            link = truth.link_fixed_ms[choice] + truth.link_ms[place, choice]
            known[choice] = knows[0] * truth.front_ms[place, choice] + knows[1] * link
            known[choice] += knows[2] * truth.server_ms[place, choice]
    return known


def expected_ms(truth: Truth, episode: Episode, t: int) -> Array:
    """What every choice takes the active device in this round, before noise."""
    place, scale = place_at(truth, episode, t), episode.scale[t]
    total = np.empty(truth.front_ms.shape[1])
    for choice in range(total.shape[0]):
        total[choice] = truth.front_ms[place, choice] * scale[0] + truth.link_fixed_ms[choice]
        total[choice] += truth.link_ms[place, choice] * scale[1]
        total[choice] += truth.server_ms[place, choice] * scale[2]
    return total


def measure(truth: Truth, episode: Episode, t: int, pick: int, latency: Array) -> None:
    """Alg. 1 line 5: the three measured latencies; one that does not take place takes 0 ms."""
    place, scale = place_at(truth, episode, t), episode.scale[t]
    if truth.samples.shape[0] > 0:
        row = int(episode.draw[t] * truth.sample_count[place, pick])
        latency[:] = truth.samples[place, pick, row] * scale
        return
    latency[0] = truth.front_ms[place, pick] * scale[0]
    latency[1] = truth.link_fixed_ms[pick] + truth.link_ms[place, pick] * scale[1]
    latency[2] = truth.server_ms[place, pick] * scale[2]
    offloads = pick != truth.front_ms.shape[1] - 1
    for segment in range(3):
        if truth.has_front[pick] if segment == 0 else offloads:
            factor, shift = episode.factor[t, segment], episode.shift[t, segment]
            latency[segment] = disturbed(latency[segment], factor, shift, episode.clip)
        else:
            latency[segment] = 0.0


def disturbed(expected: float, factor: float, shift: float, clip: bool) -> float:
    """An expected latency as it is measured."""
    measured = expected * factor + shift
    return max(measured, 0.0) if clip else measured


def probe_ms(
    truth: Truth,
    rules: Rules,
    episode: Episode,
    device: int,
    place: int,
    size: int,
    scale: float,
    factor: float,
    shift: float,
) -> float:
    """What a device reports of a timed exchange of the link."""
    stretched, fixed = truth.probe_ms[place]
    expected = stretched * rules.probe_bytes[size] * scale + fixed
    return float(disturbed(expected, factor, shift, episode.clip) * truth.report[device, 1])
