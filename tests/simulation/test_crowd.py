"""The event simulation: the round loop in the limit, queues as theory has them, a planner that
finds what trying everything finds."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from test_clustered import world_of

from cans.errors import InputError
from cans.learning.laws import random_table
from cans.learning.policies import POLICIES, Hyperparameters, policy_named
from cans.simulation.crowd import CrowdSettings, mean_ms, play_seed, simulate_crowd, switches
from cans.simulation.engines import reference
from cans.simulation.engines.crowd import Crowd, play
from cans.simulation.engines.crowd_plan import (
    allocate,
    barrier,
    exhaustive,
    thinking,
    times_of,
)
from cans.simulation.engines.crowd_server import Job, Server
from cans.simulation.worlds.crowded import crowded, pause_of
from cans.simulation.worlds.named import make_world

OWN_POLICY = replace(POLICIES["linucb"], name="own", title="Own")


# The event simulation adopts every change of a pool before a choice, as `cans-eager` does.
@pytest.mark.parametrize("policy", ["cans-eager", "linucb", "fedlinucb-dw", "local", "offload"])
@pytest.mark.parametrize("name", ["layered", "codecs"])
def test_with_infinite_workers_and_one_at_a_time_it_is_the_round_loop(policy, name) -> None:
    world = make_world(name, "resnet50", 6)
    numbers = Hyperparameters(beta_ms=20.0)
    episode = world.episode(150, 5, 5, 0, True)
    rounds = reference.play(world, policy_named(policy), numbers, episode)
    one_by_one = Crowd(workers=inf, arrivals=np.arange(150.0))
    crowd = play(world, policy_named(policy), numbers, episode, one_by_one)
    assert crowd.picks.tolist() == rounds.picks.tolist()
    np.testing.assert_allclose(crowd.latency_ms, rounds.latency_ms, rtol=1e-9)
    assert crowd.uploads == rounds.uploads.sum()
    assert not crowd.wait_ms.any()
    assert not crowd.quoted.any()
    assert not crowd.toll_ms.any()


@pytest.mark.parametrize(("devices", "workers", "load"), [(6, 1, 0.5), (20, 1, 0.9), (20, 3, 0.7)])
def test_waits_are_those_of_queueing_theory(devices, workers, load) -> None:
    world = crowded("vgg16", devices, "rpi5")
    choices = np.ones(devices, dtype=np.int64)
    pause = pause_of(world, load, workers)
    episode = world.episode(4_000, 3)
    pauses = np.random.default_rng(3).exponential(pause, 4_000)
    crowd = Crowd(workers, pauses=pauses, assigned=choices)
    record = play(world, policy_named("local"), Hyperparameters(), episode, crowd)
    assert mean_ms(record) == pytest.approx(
        thinking(times_of(world), 1e3 * pause, workers)(choices), rel=0.1 if workers == 1 else 0.2
    )


def test_a_queue_without_end_waits_as_pollaczek_and_khinchine_say() -> None:
    world = crowded("vgg16", 20, "rpi5")
    service = float(times_of(world)[1][0, 1])
    arrivals = np.cumsum(np.random.default_rng(3).exponential(service / 700.0, 12_000))
    crowd = Crowd(1, arrivals, assigned=np.ones(20, dtype=np.int64))
    episode = world.episode(12_000, 3)
    record = play(world, policy_named("local"), Hyperparameters(), episode, crowd)
    expected = 0.7 * service * 1.01 / (2 * 0.3)
    assert record.wait_ms.mean() == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("at_once", [False, True])
def test_the_planner_finds_what_trying_everything_finds(seed, at_once) -> None:
    rng = np.random.default_rng(seed)
    world = world_of(random_table(rng.random, 5), 4, rng)
    pause = pause_of(world, float(rng.uniform(0.3, 2.0)), 1)
    times = times_of(world)
    cost = barrier(times, 1) if at_once else thinking(times, 1e3 * pause, 1)
    found, best = cost(allocate(times, cost)), cost(exhaustive(times, cost))
    assert found <= best * 1.02


def test_nobody_is_lost_and_nothing_is_negative_when_all_ask_at_once() -> None:
    what = CrowdSettings("resnet50", "cans", 6, 120, at_once=True)
    record = play_seed(what, 2).record
    assert np.isfinite(record.latency_ms).all()
    assert (record.wait_ms >= 0).all()
    assert len(set(record.started_s.tolist())) == 20, "twenty rounds of six"


def test_in_a_crowd_cans_is_near_the_best_assignment_and_selfishness_costs() -> None:
    what = CrowdSettings("vgg16", "cans", 12, 300, fleet="rpi5", load=3.0)
    run, selfish = play_seed(what, 11), play_seed(replace(what, selfish=True), 11)
    ours, best = mean_ms(run.record, 100), mean_ms(run.best, 100)
    assert ours < 1.20 * best
    assert ours < mean_ms(selfish.record, 100)
    assert run.record.toll_ms.max() > 0
    assert not selfish.record.toll_ms.any()


def test_a_full_server_refuses_and_the_device_finishes_by_itself() -> None:
    world = crowded("vgg16", 6, "rpi5")
    episode = world.episode(60, 3)
    raw = np.zeros(6, dtype=np.int64)
    limits = {}
    for limit in (inf, 2.0):
        crowd = Crowd(1, assigned=raw, queue_limit=limit)
        limits[limit] = play(world, policy_named("local"), Hyperparameters(), episode, crowd)
    assert not limits[inf].refused.any()
    refused = limits[2.0].refused
    turned_away = refused.reshape(10, 6).sum(axis=1)  # one runs, one waits, noise may let one pass
    assert set(turned_away.tolist()) <= {3, 4}
    assert limits[2.0].wait_ms.max() < limits[inf].wait_ms.max()
    local = world.front_ms[world.place_of[0], world.table.local]
    assert (limits[2.0].latency_ms[refused] > local).all(), "the way there was in vain"
    assert np.isfinite(limits[2.0].latency_ms).all()


def test_learners_live_with_refusals() -> None:
    what = CrowdSettings("vgg16", "cans", 6, 240, fleet="rpi5", load=3.0)
    run = play_seed(what, 3, queue_limit=1.0)
    assert run.record.refused.any()
    assert run.record.refused.mean() < 0.5
    assert np.isfinite(run.record.latency_ms).all()


def test_a_load_that_is_told_late_is_old() -> None:
    told = {}
    for tell_s in (0.0, 10.0):
        server = Server(1.0, 3, tell_s)
        server.told(0.0)
        server.reach(Job(0, 50.0, 50.0, 1.0))
        told[tell_s] = server.told(1.0).wait_ms
    assert told == {0.0: 50.0, 10.0: 0.0}


def test_after_a_slow_spell_the_server_is_used_again() -> None:
    what = CrowdSettings("vgg16", "cans", 3, 750, fleet="rpi5", load=0.3)
    run = play_seed(what, 4, slow_from_s=10.0, slow_until_s=30.0, slow_factor=20.0)
    started = run.record.started_s
    stays = run.points == run.points.max()
    assert started[-1] > 61
    assert stays[(started > 18) & (started < 30)].mean() > 0.5
    assert stays[started > 55].mean() < 0.2
    assert run.record.probes <= 2 + started[-1], "at most one per second"


def test_a_device_alone_on_an_idle_server_asks_nothing_and_pays_nothing() -> None:
    what = CrowdSettings("vgg16", "cans", 1, 100, fleet="rpi5", load=0.2)
    record = play_seed(what, 1).record
    assert not record.quoted.any()
    assert not record.toll_ms.any()


def test_the_document_has_the_keys_of_the_round_loop() -> None:
    document = simulate_crowd(CrowdSettings("resnet50", "offload", 4, 40), 2)
    assert {"model", "policy", "world", "devices", "rounds", "engine", "seeds", "runs", "mean",
            "std", "rounds_per_second"} <= set(document)  # fmt: skip
    for run in document["runs"]:
        assert {"seed", "regret_ms", "mean_latency_ms", "estimation_error_ms", "uploads",
                "picks"} <= set(run)  # fmt: skip
        assert sum(run["picks"].values()) == 40
    best = simulate_crowd(CrowdSettings("resnet50", "allocated", 4, 40), 1)
    assert best["runs"][0]["regret_ms"] == 0.0


@pytest.mark.parametrize("policy", [POLICIES["lints"], OWN_POLICY])
def test_any_policy_that_a_server_takes_plays(policy) -> None:
    """As an object, too: nothing here looks a policy up by its name."""
    document = simulate_crowd(CrowdSettings("resnet50", policy, 4, 40), 1)
    assert document["policy"] == policy.name
    assert document["runs"][0]["regret_ms"] > 0.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policy": "toaster"}, "policy"),
        ({"policy": "dislinucb"}, "cannot play"),
        ({"workers": 0}, "workers"),
        ({"workers": 1.5}, "whole"),
        ({"load": 0.0}, "load"),
        ({"fleet": "toaster"}, "fleet"),
        ({"model": "lenet"}, "model"),
        ({"hyperparameters": Hyperparameters(beta_ms="theory")}, "beta_ms"),
    ],
)
def test_bad_values_are_said(change, said) -> None:
    with pytest.raises(InputError, match=said):
        CrowdSettings(**change).make_world()


def test_switches_are_counted_per_device_and_second() -> None:
    record = play_seed(CrowdSettings("resnet50", "offload", 4, 40), 0).record
    assert switches(record) == 0.0
