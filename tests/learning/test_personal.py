"""What only one device sees of a choice counts for that device alone."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cans.learning import PartitionTable
from cans.learning.arithmetic.arrays import LearnerState
from cans.learning.arithmetic.by_choice import bending, personal
from cans.learning.arithmetic.by_choice.deviations import EVIDENCE, FLOOR_MS, REPEATED, SPREADS
from cans.learning.arithmetic.layout import fleet_state
from cans.learning.policies import POLICIES, Hyperparameters
from cans.simulation.engines import reference
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.worlds.world import Noise, Participation, World

WORK = np.linspace(0.0, 1.0, 8)
BEST, SECOND = 3, 4
DEVICES, EACH = 6, 300


def equal_but_for_one(longer: float) -> World:
    """Equal devices, but that the link of the best choice takes the first so many times as long."""
    link = np.array([300.0, 300, 300, 20, 26, 200, 200, 0])
    sent = link / link.max()
    table = PartitionTable(
        "eight",
        [f"point-{choice}" for choice in range(8)],
        front=WORK[:, None],
        link=np.column_stack([sent, sent > 0]),
        server=(1.0 - WORK)[:, None],
    )
    world = World.of(
        table,
        devices=DEVICES,
        front_ms={"pi": (200.0 * WORK).tolist()},
        link_ms={"wifi": link.tolist()},
        server_ms=(20.0 * (1.0 - WORK)).tolist(),
        noise=Noise.LOGNORMAL,
        noise_level=0.05,
        participation=Participation.ROUND_ROBIN,
    )
    other = link.copy()
    other[BEST] *= longer
    return replace(
        world,
        place_of=np.array([1, *[0] * (DEVICES - 1)]),
        link_ms=np.array([link, other]),
        **{
            name: np.repeat(getattr(world, name), 2, axis=0)
            for name in ("front_ms", "server_ms", "probe_ms", "allowed")
        },
    )


def played(world: World) -> Record:
    policy = POLICIES["cans"]
    episode = world.episode(DEVICES * EACH, 3, 5, offline_whole=True)
    return reference.play(world, policy, Hyperparameters(), episode)


def share_of(record: Record, device: int, choice: int) -> float:
    """Of the second half of a device's inferences, made with a choice."""
    picks = record.picks[record.active == device][EACH // 2 :]
    return float((picks == choice).mean())


def test_a_device_leaves_what_takes_it_alone_longer() -> None:
    record = played(equal_but_for_one(6.0))
    assert share_of(record, 0, SECOND) > 0.9
    assert share_of(record, 1, BEST) > 0.9, "the others are not kept from it"


def test_without_that_it_goes_by_what_the_others_measure(monkeypatch) -> None:
    monkeypatch.setattr(bending, "individualise", lambda *_: None)
    assert share_of(played(equal_but_for_one(6.0)), 0, SECOND) < 0.5


@pytest.mark.parametrize("longer", [1.0, 1.02])
def test_equal_devices_stay_together(longer: float) -> None:
    record = played(equal_but_for_one(longer))
    for device in range(DEVICES):
        assert share_of(record, device, BEST) > 0.9


# --- step 10 of the formulas, beside loops over numbers ----------------------------------------

FRONT = 0


def random_state(seed: int) -> LearnerState:
    """One device that has observed some choices of its front-end, in a pool of several."""
    rng = np.random.default_rng(seed)
    table = equal_but_for_one(1.0).table
    state = fleet_state(table, POLICIES["cans"], Hyperparameters(), 1)
    choices, count = state.choices, table.choices
    few = bool(rng.random() < 0.5)  # then noise is known from few observations, too
    own = rng.choice([0.0, 2.0, 3.0] if few else [0.0, 1.0, REPEATED, 2.0, 5.0, 40.0], count)
    mean = rng.uniform(1.0, 300.0, count) * (rng.random(count) < 0.9)
    usual = mean * np.exp(rng.normal(0.0, rng.choice([0.0, 0.1, 0.3, 0.8]), count))
    state.mean[0, FRONT] = mean
    choices.own[0, FRONT, 0] = own
    choices.own[0, FRONT, 1] = own * usual * np.exp(rng.normal(0.0, 0.05, count))
    others = rng.choice([0.0, 1.0] if few else [0.0, 1.0, 30.0], count)
    choices.local[0, FRONT, 0] = np.minimum(rng.choice([0.0, 2.0], count), own)
    choices.synced[0, FRONT, 0] = others + own - choices.local[0, FRONT, 0]
    choices.scatter[0, FRONT] = rng.uniform(0.1, 0.4, count) * (rng.random(count) < 0.9)
    choices.width[0, FRONT] = mean * rng.choice([0.0, 0.02, 0.3])
    state.physics.own[0, FRONT, -1] = own.sum()
    state.synced[0, FRONT, -1] = own.sum() + rng.choice([0.0, 50.0])
    return state


def found_by_loops(
    state: LearnerState, due: bool
) -> tuple[float, list[float], list[float], list[float]]:
    """The spread, and mean, standard deviation and lower bound of every choice."""
    choices, kappa = state.choices, state.physics.kappa
    mean, width = state.mean[0, FRONT].tolist(), choices.width[0, FRONT].tolist()
    low, spread = state.physics.low[0, FRONT].tolist(), float(choices.personal[0, FRONT])
    own, total, *_ = choices.own[0, FRONT]
    scatter = choices.scatter[0, FRONT]
    seen = [c for c in range(len(mean)) if own[c] >= REPEATED and mean[c] > 0 and scatter[c] > 0]
    if not due and spread == 0.0:
        return spread, mean, width, low
    if state.synced[0, FRONT, -1] <= state.physics.own[0, FRONT, -1] or not seen:
        return 0.0, mean, width, low
    apart = {c: total[c] / own[c] / mean[c] - 1.0 for c in seen}
    noise = {
        c: scatter[c] ** 2 * (FLOOR_MS**2 + mean[c] ** 2) / FLOOR_MS**2 / own[c] / mean[c] ** 2
        for c in seen
    }
    open_ = [(width[c] / mean[c]) ** 2 if mean[c] > 0 else width[c] ** 2 for c in range(len(mean))]
    if due:
        everybody = choices.synced[0, FRONT, 0] + choices.local[0, FRONT, 0]
        freedom = sum(max(each - 1.0, 0.0) for each in everybody) + 2.0
        best, spread = EVIDENCE, 0.0
        for candidate in SPREADS:
            likelier = 0.0
            for c in seen:
                without, square = noise[c] + open_[c], apart[c] ** 2
                odd = log(1.0 + square / (freedom * without))
                usual = log(1.0 + square / (freedom * (without + candidate**2)))
                likelier += (freedom + 1.0) * (odd - usual) - log(1.0 + candidate**2 / without)
            if 0.5 * likelier > best:
                best, spread = 0.5 * likelier, float(candidate)
    if spread == 0.0:
        return spread, mean, width, low
    for c in range(len(mean)):
        prior = open_[c] + spread**2
        share = prior / (prior + noise[c]) if c in seen else 0.0
        mean[c] *= 1.0 + share * apart.get(c, 0.0)
        width[c] = sqrt(prior * (1.0 - share)) * mean[c]
        low[c] = max(mean[c] - kappa * width[c], 0.0)
    return spread, mean, width, low


@given(seed=st.integers(0, 10_000), due=st.booleans(), before=st.sampled_from([0.0, 0.1]))
def test_it_is_what_the_formulas_say(seed: int, due: bool, before: float) -> None:
    state = random_state(seed)
    state.choices.personal[0, FRONT] = before
    spread, mean, width, low = found_by_loops(state, due)
    personal.individualise(state, 0, FRONT, due)
    assert state.choices.personal[0, FRONT] == spread
    np.testing.assert_allclose(state.mean[0, FRONT], mean, rtol=1e-9)
    np.testing.assert_allclose(state.choices.width[0, FRONT], width, rtol=1e-9)
    np.testing.assert_allclose(state.physics.low[0, FRONT], low, rtol=1e-9, atol=1e-9)


def test_the_random_states_say_something() -> None:
    found = []
    for seed in range(60):
        state = random_state(seed)
        personal.individualise(state, 0, FRONT, True)
        found.append(float(state.choices.personal[0, FRONT]))
    assert 10 < found.count(0.0) < 50
    assert len(set(found)) > 3
