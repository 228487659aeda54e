"""Policy `cans` equals the slow transcription in `tests/reference_cans.py`, pick by pick."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_worlds import sudden_change, world_of

import reference_cans
from cans.learning.laws.tiny_fleet import random_table
from cans.learning.policies import POLICIES, Hyperparameters
from cans.simulation.engines import reference as object_loop
from cans.simulation.engines.arrays import lay_out, new_record
from cans.simulation.engines.compiled import compiled_functions
from cans.simulation.run import play_fleet
from cans.simulation.worlds.drift import Step, Steps
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.named import WORLDS, make_world
from cans.simulation.worlds.trace import trace_world
from cans.simulation.worlds.world import Noise, World

CANS = POLICIES["cans"]
DEFAULTS = reference_cans.Numbers()


def by_the_reference(world: World, episode: Episode, numbers, immediate: bool = True):
    """Picks and uploads of the transcription in this episode."""
    table = world.table

    def measure(t: int, p: int) -> tuple[float, ...]:
        expected = object_loop.expected_latency(world, episode, t)[:, p]
        measured = object_loop.measured_latency(world, episode, t, p, expected)
        lie = world.report[episode.active[t]]
        return measured[0] * lie, measured[1] * lie, measured[2]  # the server times itself

    return reference_cans.cans(
        [table.front, table.link, table.server],
        [(world.type_of[m], world.network_of[m], 0) for m in range(world.devices)],
        episode.active.tolist(),
        measure,
        table.probe,
        lambda t: object_loop.timed_probe(world, episode, t),
        lambda m: object_loop.arrival_probes(world, episode, m),
        [
            list(zip(choices, latencies, strict=True))
            for choices, latencies in zip(episode.offline_choice, episode.offline_ms, strict=True)
        ],
        list(zip(episode.server_choice, episode.server_ms, strict=True)),
        numbers,
        immediate,
        [world.allowed[place] for place in world.place_of],
        np.flatnonzero(np.equal(table.point_of, 0)).tolist(),
    )


def by_the_engines(world: World, episode: Episode, policy, immediate: bool = True):
    """Records of the object loop and of the compiled engine."""
    slow = object_loop.play(world, policy, Hyperparameters(), episode, immediate=immediate)
    fleet = lay_out(world, policy, Hyperparameters(), None, immediate)
    fast = new_record(episode.rounds, len(policy.parts))
    play_fleet(fleet, episode, fast, compiled_functions())
    return slow, fast


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", WORLDS)
def test_equals_the_reference_in_every_world(name) -> None:
    check_picks(make_world(name, "resnet50", 6), 150, seed=5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", ["vit_b16-96", "mobilenet_v2"])
def test_equals_the_reference_where_devices_differ_by_choice(name) -> None:
    check_picks(trace_world(Path(name), 6), 300, seed=5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", ["cells", "drifting"])
def test_equals_the_reference_when_uploads_wait(name) -> None:
    check_picks(make_world(name, "resnet50", 6), 150, seed=5, immediate=False)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("factors", [(20.0, 1.0, 1.0), (1.0, 1.0, 300.0)])
@pytest.mark.parametrize("name", ["layered", "codecs"])
@pytest.mark.parametrize("immediate", [True, False])
def test_equals_the_reference_when_something_is_slow_for_a_while(name, factors, immediate) -> None:
    drift = Steps((Step(100, 200, factors),))
    world = replace(make_world(name, "resnet50", 6), drift=drift)
    trials = check_picks(world, 300, seed=5, immediate=immediate)
    assert trials > 0, "otherwise this says nothing of them"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", ["layered", "bent-1", "accelerator"])
def test_equals_the_reference_where_not_all_is_allowed(name) -> None:
    world = make_world(name, "resnet50", 6)
    allowed = world.allowed.copy()
    allowed[:, :3] = False
    check_picks(replace(world, allowed=allowed), 150, seed=5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", ["bent-1", "near-ties", "paper", "drifting"])
def test_equals_the_reference_where_no_choice_may_deviate(name) -> None:
    straight = replace(DEFAULTS, bends=(False, False, False))
    check_picks(make_world(name, "resnet50", 6), 150, 5, straight)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("immediate", [True, False])
def test_equals_the_reference_when_everything_is_told(immediate) -> None:
    eager = replace(DEFAULTS, events=False)
    check_picks(make_world("drifting", "resnet50", 6), 150, 5, eager, immediate)


def check_picks(
    world: World, rounds: int, seed: int, numbers=DEFAULTS, immediate: bool = True
) -> int:
    """Picks and uploads are the same three times; returns how often something idle was used."""
    policy = replace(
        CANS,
        physical=replace(CANS.physical, kappa=numbers.kappa),
        parts=tuple(
            replace(
                part, spread=spread, events=numbers.events, eager=not numbers.events, bends=bends
            )
            for part, spread, bends in zip(CANS.parts, numbers.spread, numbers.bends, strict=True)
        ),
        probe_after_s=numbers.probe_after,
        ridge=numbers.ridge,
    )
    episode = world.episode(rounds, seed, 5, offline_whole=True)
    picks, uploads = by_the_reference(world, episode, numbers, immediate)
    records = by_the_engines(world, episode, policy, immediate)
    for record in records:
        assert record.picks.tolist() == picks
        assert record.uploads.tolist() == uploads
    assert records[0].trials == records[1].trials
    return int(records[0].trials[0])


@pytest.mark.usefixtures("compiled")
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    ridge=st.floats(-9.0, 0.0).map(lambda exponent: 10.0**exponent),
    kappa=st.floats(0.1, 4.0),
    spread=st.tuples(*[st.just(0.0) | st.floats(0.05, 0.5)] * 3),
    devices=st.integers(1, 5),
    choices=st.integers(3, 12),
    widths=st.tuples(*[st.integers(1, 3)] * 3),
    noise=st.sampled_from([(Noise.GAUSSIAN, 3.0), (Noise.LOGNORMAL, 0.1)]),
    gamma=st.sampled_from([0.0, 0.3]),
    lie=st.sampled_from([1.0, 5.0, 0.2]),
    change=st.sampled_from([(1.0, 1.0, 1.0), (1.0, 4.0, 1.0), (3.0, 0.3, 1.0), (1.0, 1.0, 8.0)]),
    immediate=st.booleans(),
)
def test_equals_the_reference(
    seed, ridge, kappa, spread, devices, choices, widths, noise, gamma, lie, change, immediate
) -> None:
    rng = np.random.default_rng(seed)
    table = random_table(rng.random, choices, widths)
    _, clear = reference_cans.viable_choices(table.front, table.link)
    assume(clear > 0.03)
    world = world_of(
        table,
        devices,
        rng,
        noise=noise[0],
        noise_level=noise[1],
        gamma=gamma,
        liars={devices - 1: lie},
        drift=sudden_change(change, 0.5),
    )
    numbers = reference_cans.Numbers(ridge=ridge, kappa=kappa, spread=spread)
    check_picks(world, 120, seed, numbers, immediate)
