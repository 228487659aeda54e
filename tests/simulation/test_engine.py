"""The compiled engine equals the object loop, pick by pick: every policy, world and option."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cans.learning.arithmetic import linear
from cans.learning.policies import (
    ABLATIONS,
    POLICIES,
    VARIANTS,
    Hyperparameters,
    policy_named,
)
from cans.simulation.engines import fast
from cans.simulation.engines.arrays import lay_out, new_record
from cans.simulation.engines.reference import Exchange, enrol, new_learners
from cans.simulation.run import DELIVERIES, Settings, draw, play, play_fleet
from cans.simulation.worlds.backbones import MODELS
from cans.simulation.worlds.groups import grouped
from cans.simulation.worlds.named import WORLDS
from cans.simulation.worlds.world import Gamma, Noise, Participation

hyperparameters = st.builds(
    Hyperparameters,
    ridge=st.floats(0.005, 3.0),
    alpha=st.floats(0.05, 4.0),
    beta_ms=st.floats(0.1, 200.0) | st.just("theory"),
    offline_runs=st.integers(0, 6),
    sampling_ms=st.floats(0.1, 30.0),
    fleet_threshold=st.floats(0.5, 20.0),
)
configurations = st.builds(
    Settings,
    model=st.sampled_from(MODELS),
    world=st.sampled_from(sorted(WORLDS)),
    devices=st.integers(1, 12),
    rounds=st.integers(1, 250),
    gamma=st.sampled_from([0.0, 0.3]),
    gamma_mode=st.sampled_from(list(Gamma)),
    noise=st.sampled_from(list(Noise)),
    participation=st.sampled_from(list(Participation)),
    delivery=st.sampled_from(DELIVERIES),
    pool_age=st.sampled_from([0.0, 7.0]),
    hyperparameters=hyperparameters,
)


def assert_same(ours, theirs, error_ms: float = 1e-5) -> None:
    np.testing.assert_array_equal(ours.active, theirs.active)
    np.testing.assert_array_equal(ours.picks, theirs.picks)
    np.testing.assert_array_equal(ours.uploads, theirs.uploads)
    np.testing.assert_array_equal(ours.part_uploads, theirs.part_uploads)
    np.testing.assert_array_equal(ours.part_downloads, theirs.part_downloads)
    np.testing.assert_array_equal(ours.probes, theirs.probes)
    np.testing.assert_array_equal(ours.ties, theirs.ties)
    np.testing.assert_allclose(ours.regret_ms, theirs.regret_ms, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.latency_ms, theirs.latency_ms, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.error_ms, theirs.error_ms, rtol=1e-5, atol=error_ms)


def with_policy(configuration: Settings, policy: str) -> Settings:
    return Settings(**{**vars(configuration), "policy": policy})


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=6)
@given(configuration=configurations, seed=st.integers(0, 2**32))
def test_compiled_equals_the_object_loop(policy, configuration, seed) -> None:
    check_engines_agree(configuration, policy, seed)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("policy", [*ABLATIONS, *VARIANTS])
@settings(max_examples=2)
@given(configuration=configurations, seed=st.integers(0, 2**32))
def test_compiled_equals_the_object_loop_without_an_ingredient(policy, configuration, seed) -> None:
    check_engines_agree(configuration, policy, seed)


def check_engines_agree(configuration: Settings, policy: str, seed: int) -> None:
    configuration = with_policy(configuration, policy)
    world = configuration.make_world()
    fast, slow = (play(configuration, name, seed, world) for name in ("fast", "reference"))
    # A physical policy has next to no ridge, so that rounding shows in what it predicts.
    assert_same(fast, slow, 0.05 if policy_named(policy).physical else 1e-5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("policy", ["fedlinucb-dw", "fedlinucb", "linucb", "dislinucb", "cans"])
def test_compiled_equals_the_object_loop_for_the_papers_fleet(policy, world) -> None:
    configuration = Settings("vgg16", policy, world, rounds=800)
    made = configuration.make_world()
    fast, slow = (play(configuration, name, 3, made) for name in ("fast", "reference"))
    assert_same(fast, slow, 0.05)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=3)
@given(configuration=configurations, seed=st.integers(0, 2**32))
def test_without_numba_the_engine_is_plain_python(policy, configuration, seed) -> None:
    numbers = configuration.hyperparameters
    if numbers.beta_ms == "theory":
        numbers = Hyperparameters(ridge=numbers.ridge, alpha=numbers.alpha)
    configuration = Settings(
        **{**vars(configuration), "policy": policy, "rounds": 60, "hyperparameters": numbers}
    )
    world, policy = configuration.make_world(), POLICIES[policy]
    episode = draw(configuration, seed, world)
    groups = grouped(world, episode) if policy.grouped else world
    fleet = lay_out(
        groups, policy, numbers, None, configuration.delivery == "immediate", configuration.pool_age
    )
    record = new_record(configuration.rounds, len(policy.parts))
    play_fleet(fleet, episode, record, vars(linear) | vars(fast))
    assert_same(
        record,
        play(configuration, "reference", seed, world),
        0.05 if policy.physical else 1e-5,
    )


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("policy", ["cans", "fedlinucb"])
def test_uploads_that_wait_for_a_request_reach_both_engines_alike(policy) -> None:
    configuration = Settings("vgg16", policy, "layered", rounds=800, delivery="next-contact")
    made = configuration.make_world()
    fast, slow = (play(configuration, name, 3, made) for name in ("fast", "reference"))
    assert_same(fast, slow, 0.05)


def test_a_probe_that_surprises_nobody_speaks_against_a_change_of_the_link() -> None:
    configuration = Settings("vgg16", "cans", "layered", devices=3, rounds=10)
    world, policy, numbers = configuration.make_world(), policy_named("cans"), Hyperparameters()
    learners = new_learners(world, policy, numbers)
    exchange = Exchange(policy, numbers, learners, new_record(10, len(policy.parts)))
    enrol(learners, exchange.edge, draw(configuration, 0, world))
    learner, pools = learners[0], exchange.edge.pools
    for key in pools:
        pools[key] = replace(pools[key], alarm=(5.0, 4.0))

    exchange.kept_quiet(learner, world.table.local, probed=False, uploads=())
    assert {pool.alarm for pool in pools.values()} == {(5.0, 4.0)}

    exchange.kept_quiet(learner, world.table.local, probed=True, uploads=())
    assert {key.part: pool.alarm for key, pool in pools.items() if pool.alarm != (5.0, 4.0)} == {
        "link": (3.0, 3.0)
    }
