"""Looks: now and then another choice than the best one, where what it may tell is worth the price.

While a line seems to fit, nothing makes a device try what the line says is a little worse. A look
does: it is earned by observations, rarer the more is known, and taken if it is expected to save
more than it costs.
"""

from __future__ import annotations

from math import erfc, exp, pi, sqrt

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, LearnerState
from cans.learning.arithmetic.by_choice.barring import affordable, too_far, too_slow
from cans.learning.arithmetic.by_choice.counts import most_observed, observed
from cans.learning.arithmetic.by_choice.deviations import share, suspicion
from cans.learning.arithmetic.linear import times

CURIOSITY, AT_MOST, WORTHWHILE = 10.0, 0.2, 0.04
"""Of n observations that the pools of a device have, about ten cube roots may be spent on looking,
at what is expected to cost a fifth more at most and to save more than a look and 4 % cost."""

AGAIN = 1.02
"""Growth of what is known of a part after which a look that was not worth taking is considered
again: of a server that has just changed much is news that is little beside all of the front-end."""

LOOKS = (1.0, 4.0, 16.0)
"""Looks at one choice that are weighed together."""

LEAST_MS = 1.0
"""A deviation is a share of the latency, and of no less than this: what takes less than noise does
is not looked at for what a few noisy averages say of it."""

HARDLY_ANY = 0.02
"""The share of its work that a server must be left to tell anything of the rest."""


def every_line_drawn(state: LearnerState, device: int) -> bool:
    """Whether every part, the link included, has an observation per feature. Before that a choice
    is made for what is not known of it, and a look at what is known would only put that off."""
    for part in range(state.rows.shape[0]):
        if state.synced[device, part, -2] < state.dimension[part]:
            return False
    return True


def look(state: LearnerState, device: int, pick: int, charge: Array, allowed: BoolArray) -> int:
    """The allowed choice that is worth a look now in the place of `pick`, or `pick`: what looks are
    expected to save, if as many inferences follow as were made so far, exceeds what they cost.
    `charge` comes on top of each choice.

    One look tells little where noise is large, and is worth nothing where only several would change
    one's mind; so it counts as the best of so many `LOOKS`, for its share of them (Frazier and
    Powell, 2010).
    """
    physics, choices = state.physics, state.choices
    if not its_turn(state, device) or not every_line_drawn(state, device):
        return pick
    mean = state.mean[device].sum(axis=0) + charge
    variance, noise = np.zeros_like(mean), np.zeros_like(mean)
    for part in range(state.rows.shape[0]):
        deviating = choices.spread[device, part] > 0.0 or choices.personal[device, part] > 0.0
        if choices.suspect[part] or deviating:
            expected, open_, every = outlook(state, device, part)
            mean = mean - state.mean[device, part] + expected
            variance, noise = variance + open_, noise + every
    error, worse = np.sqrt(np.maximum(variance, 1e-12)), mean - mean[pick]
    inferences = most_observed(state, device)
    offered = physics.offered & allowed
    near = offered & (worse <= AT_MOST * mean[pick])
    best = max(float(mean[pick]), float(choices.seen[device, pick] + charge[pick]))
    slow = too_slow(state, device, charge, best)
    far = too_far(state, device, mean, np.where(offered, 0.0, np.inf))
    near = near & affordable(state, device, mean, pick) & ~slow & ~far
    near = near & ~misleading(state, device) & ~no_better(state, device, pick)
    most, found = WORTHWHILE * mean[pick], pick
    for choice in range(mean.shape[0]):
        if near[choice]:
            for looks in LOOKS:
                told = error[choice] ** 2 / sqrt(error[choice] ** 2 + noise[choice] / looks)
                saved = told * improvement(worse[choice] / told)
                gain = inferences * saved / looks - max(worse[choice], 0.0)
                if gain > most:
                    most, found = gain, choice
    if found != pick:
        choices.earned[device, 0] = 0.0
    else:
        for part in range(state.rows.shape[0]):
            choices.considered[device, part] = observed(state, device, part)
    return found


def no_better(state: LearnerState, device: int, pick: int) -> BoolArray:
    """Choices that take no less than `pick` whatever a look finds, `pick` itself among them: they
    have no less work for device and server, and are no shorter under way."""
    beaten = np.ones(state.rows.shape[1], dtype=np.bool_)
    for part in range(state.rows.shape[0]):
        if not state.choices.suspect[part]:
            beaten = beaten & (state.mean[device, part] >= state.mean[device, part, pick])
        elif state.informative[part, pick]:
            beaten = beaten & (state.physics.floor[part, pick] >= 1.0)
    return beaten


def misleading(state: LearnerState, device: int) -> BoolArray:
    """Choices that leave the server hardly any work, while its line was drawn through few
    observations: a server takes some milliseconds for anything, and a line through those says that
    the whole model takes for ever."""
    none = np.zeros(state.rows.shape[1], dtype=np.bool_)
    server = state.physics.server_part
    if server < 0 or state.synced[device, server, -2] >= state.dimension[server] + state.young:
        return none
    work = state.mean[device, server]
    result: BoolArray = (work > 0.0) & (work < HARDLY_ANY * work[0])
    return result


def outlook(state: LearnerState, device: int, part: int) -> tuple[Array, Array, Array]:
    """Of every choice, with the spread to be reckoned with: the latency expected of a part,
    its variance, and that of one observation. While the line seems to fit, what is expected goes by
    it alone; here its choices have a say, as far as their observations tell deviation from noise.
    """
    choices, expected = state.choices, state.mean[device, part]
    if choices.personal[device, part] > 0.0:
        noise = state.physics.deviation[device, part] ** 2 / share(expected)
        return expected, choices.width[device, part] ** 2, np.where(expected > 0.0, noise, 0.0)
    spread = suspicion(state, device, part)
    every = max(state.physics.deviation[device, part] ** 2, 1e-12)
    sums = choices.synced[device, part] + choices.local[device, part]
    noise = every / share(expected)
    deviates = spread * spread * (expected * expected + LEAST_MS * LEAST_MS)
    left = noise / (noise + deviates * sums[0])
    open_: Array = spread * spread * expected * expected * left
    noise = np.where(expected > 0.0, noise, 0.0)
    if choices.spread[device, part] > 0.0:  # they have had their say
        return expected, open_, noise
    line = times(choices.rows[part], state.physics.theta[device, part])
    known = (sums[0] > 0.0) & (line > 0.0)
    average = sums[1] / np.where(known, sums[0], 1.0) * state.physics.pace[device, part]
    deviation = np.where(known, average / np.where(known, line, 1.0) - 1.0, 0.0)
    return expected * np.maximum(1.0 + deviation * (1.0 - left), 0.0), open_, noise


def improvement(z: float) -> float:
    """E max(e - z, 0) of a standard normal e: what is saved on average, in standard deviations, by
    knowing a choice that is expected to be worse by z of them."""
    return float(exp(-0.5 * z * z) / sqrt(2.0 * pi) - 0.5 * z * erfc(z / sqrt(2.0)))


def its_turn(state: LearnerState, device: int) -> bool:
    """Whether this device has earned a look with what it has observed: its share in what its pools
    may spend. One that was earned and not worth taking is kept, but no second one, and considered
    again when a little more is known of some part."""
    choices = state.choices
    own, known, news = 0.0, 0.0, False
    for part in range(state.rows.shape[0]):
        if choices.suspect[part]:
            own += float(state.physics.own[device, part, -1])
            now, then = observed(state, device, part), float(choices.considered[device, part])
            known += now
            news = news or now < then or now > AGAIN * then
    earned = choices.earned[device]
    more = max(own - float(earned[1]), 0.0) * CURIOSITY / max(known, 1.0) ** (2.0 / 3.0)
    earned[0], earned[1] = min(float(earned[0]) + more, 1.0), own
    return bool(earned[0] >= 1.0 and news)
