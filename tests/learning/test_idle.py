"""What is idle is tried beside an answer: who was slow for a while comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cans.learning import DeviceLearner
from cans.learning.arithmetic import idle
from cans.learning.policies import ABLATIONS, POLICIES, Hyperparameters, Policy
from cans.simulation.engines import reference
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.run import Settings, play
from cans.simulation.worlds.drift import Step, Steps
from cans.simulation.worlds.named import make_world

FLEET, SLOW_FROM, SLOW_UNTIL, END = 5, 500, 1_000, 2_000  # devices, and rounds
SEGMENTS = [part.name for part in POLICIES["cans"].parts]
SERVERS, FRONTS = (1.0, 1.0, 300.0), (20.0, 1.0, 1.0)


def test_what_leaves_half_of_some_work_says_something_of_a_device() -> None:
    rows = np.array([[0.0, 0.0], [0.1, 0.9], [0.4, 0.4], [1.0, 1.0]])
    assert idle.hardly_for_device(rows).tolist() == [True, False, True, False]


def test_what_leaves_half_of_all_work_says_something_of_a_server() -> None:
    rows = np.array([[1.0, 1.0], [0.9, 0.1], [0.6, 0.6], [0.0, 0.0]])
    assert idle.hardly_for_server(rows).tolist() == [False, True, False, True]


def test_work_that_the_model_has_none_of_does_not_count() -> None:
    rows = np.array([[0.0, 0.0], [0.6, 0.0], [1.0, 0.0]])
    assert idle.hardly_for_device(rows).tolist() == [True, False, False]
    assert idle.hardly_for_server(rows[::-1].copy()).tolist() == [False, False, True]
    assert idle.hardly_for_device(np.array([[0.0], [0.5], [1.0]])).tolist() == [True, False, False]


def test_an_idle_part_is_tried_soon_where_little_is_known_or_it_has_changed() -> None:
    table = make_world("layered", "resnet50", 1).table
    learner = DeviceLearner(table, POLICIES["cans"])
    state, local = learner._state, table.local
    every = POLICIES["cans"].probe_after_s
    server = SEGMENTS.index("server")

    def wanted(time: float) -> bool:
        return learner.trials.wants_server_run(time, local, 0.0)

    assert not wanted(every)
    assert wanted(every + 0.1), "little is known"
    state.synced[0, server, -2] = state.dimension[server] + state.young
    assert not wanted(idle.SELDOM * every)
    assert wanted(idle.SELDOM * every + 0.1)
    state.epoch[0, server] = 1
    assert wanted(every + 0.1), "it has changed, and may change back"
    assert not learner.trials.wants_server_run(1e6, 0, 0.0), "the raw input says what it takes"


def test_a_trial_of_the_server_goes_by_the_way_there_alone() -> None:
    """What the server takes is what is in doubt."""
    table = make_world("codecs", "resnet50", 1).table
    learner = DeviceLearner(table, POLICIES["cans"])
    state = learner._state
    raw = np.flatnonzero(np.equal(table.point_of, 0) & state.physics.offered)
    assert len(raw) > 1
    server, link = SEGMENTS.index("server"), SEGMENTS.index("link")
    state.mean[0] = 5.0
    state.mean[0, link, raw[1]] = 4.0
    state.mean[0, server, raw[1]] = 500.0
    allowed = np.isin(np.arange(table.choices), raw)
    assert idle.soonest_at_server(state, 0, server, allowed) == raw[1]


def test_a_policy_without_physics_knows_real_work_too() -> None:
    """One of the user's own may count with the load that a server tells."""
    named = zip(POLICIES["cans"].parts, ("front", "link", "server"), strict=True)
    parts = tuple(replace(part, name=name, bends=False, events=False) for part, name in named)
    own = replace(POLICIES["cans"], name="own", parts=parts, physical=None, fresh=False)
    table = make_world("codecs", "resnet50", 1).table
    learner = DeviceLearner(table, own)
    assert table.point_of[learner.trials.work_choice] == 0
    assert learner.trials.is_light(table.local)
    assert not learner.trials.is_light(0)
    assert not learner.trials.wants_own_run(1e6, 0)
    assert not learner.trials.wants_server_run(1e6, table.local, 0.0)


def recovered(factors: tuple[float, float, float], policy: Policy) -> tuple[float, Record]:
    """Regret over the best latency in the last quarter, as a share; something was slow before."""
    drift = Steps((Step(SLOW_FROM, SLOW_UNTIL, factors),))
    world = replace(make_world("layered", "resnet50", FLEET), drift=drift)
    episode = world.episode(END, 7, 5, offline_whole=True)
    record = reference.play(world, policy, Hyperparameters(), episode)
    last = slice(3 * END // 4, END)
    regret = record.regret_ms[last].sum()
    return float(regret / (record.expected_ms[last].sum() - regret)), record


@pytest.mark.parametrize("factors", [SERVERS, FRONTS])
def test_a_fleet_comes_back(factors) -> None:
    lost, record = recovered(factors, POLICIES["cans"])
    assert lost < 0.01
    assert 0 < record.trials[0] <= (FLEET + 1) * END / 10, "each device once in ten rounds, at most"


def test_without_trials_it_stays_away_from_a_server_that_was_slow() -> None:
    lost, record = recovered(SERVERS, ABLATIONS["cans-no-probes"])
    assert record.trials[0] == 0
    assert lost > 0.1


def test_a_trial_is_no_inference() -> None:
    """What a run is said to have taken is what its callers waited for: what was picked."""
    what = Settings("resnet50", "cans", "literal", devices=FLEET, rounds=END)
    world = what.make_world()
    record = play(what, "reference", 3, world)
    assert record.trials[0] > 0, "devices stay local, where a link is never worth it"
    by_device = [np.sum(world.segments_ms(device), axis=0) for device in range(FLEET)]
    picked = [
        by_device[device][pick] for device, pick in zip(record.active, record.picks, strict=True)
    ]
    np.testing.assert_allclose(record.expected_ms, picked)
    stayed = record.picks == world.table.local
    usual = np.array(picked)[stayed]
    assert np.abs(record.latency_ms[stayed] - usual).max() < 10 * world.noise_level
