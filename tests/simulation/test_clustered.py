"""The clustered bandits equal their slow references, pick by pick, and do find who is alike."""

from __future__ import annotations

import clustered_reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cans.errors import InputError
from cans.learning.laws import random_table
from cans.learning.policies import CLUSTERED, Hyperparameters, policy_named
from cans.simulation.engines.clustered import CUT, chi_square_quantile, play
from cans.simulation.run import Settings, simulate
from cans.simulation.run import play as play_settings
from cans.simulation.worlds.named import make_world
from cans.simulation.worlds.world import World


def world_of(table, devices: int, rng: np.random.Generator) -> World:
    """Two kinds of devices that nobody told apart, in a random linear world."""
    kind = np.arange(devices) % 2
    back = [each @ rng.uniform(1, 60, each.shape[1]) for each in (table.link, table.server)]
    speed = rng.uniform(1, 90, (2, table.front.shape[1])) * np.array([[1.0], [5.0]])
    return World(
        name="random",
        table=table,
        types=("auto",),
        networks=("default",),
        type_of=np.zeros(devices, dtype=np.int64),
        network_of=np.zeros(devices, dtype=np.int64),
        place_of=kind,
        front_ms=speed @ table.front.T,
        link_ms=np.tile(back[0], (2, 1)),
        link_fixed_ms=np.zeros(table.choices),
        server_ms=np.tile(back[1], (2, 1)),
        probe_ms=np.zeros((2, 2)),
        allowed=np.ones((2, table.choices), dtype=np.bool_),
        noise_level=3.0,
    )


def slowly(name: str, world: World, episode, numbers: Hyperparameters):
    rows = world.table.columns(("front", "link", "server"))

    def measure(t: int, p: int) -> float:
        front, link, server = (each[p] for each in world.segments_ms(episode.active[t]))
        noise = episode.shift[t]
        total = front + noise[0] if world.table.front[p].any() else 0.0
        return total + (link + server + noise[1] + noise[2] if p < world.table.local else 0.0)

    what = (rows, episode.active.tolist(), world.devices, measure)
    if name == "fclub":
        scale = max(sum(world.segments_ms(d)).max() for d in range(world.devices))
        return clustered_reference.fclub(
            *what, scale, CUT, numbers.ridge, numbers.alpha, numbers.beta_ms
        )
    return clustered_reference.hetofedbandit(
        *what,
        lambda m, p: 2 * world.noise_level**2,
        lambda freedom: float(chi_square_quantile(np.array(freedom))),
        numbers.ridge,
        numbers.fleet_threshold,
        numbers.beta_ms,
    )


@pytest.mark.parametrize("name", CLUSTERED)
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ridge=st.floats(0.05, 3.0).filter(lambda value: abs(value - 1) > 0.01),
    alpha=st.floats(0.2, 3.0),
    beta=st.floats(1.0, 100.0),
    threshold=st.floats(0.5, 8.0),
    devices=st.integers(1, 5),
)
def test_equals_its_reference(name, seed, ridge, alpha, beta, threshold, devices) -> None:
    rng = np.random.default_rng(seed)
    numbers = Hyperparameters(ridge=ridge, alpha=alpha, beta_ms=beta, fleet_threshold=threshold)
    world = world_of(random_table(rng.random, 7), devices, rng)
    episode = world.episode(70, seed)
    record = play(world, policy_named(name), numbers, beta, episode)
    picks, uploads = slowly(name, world, episode, numbers)
    assert record.picks.tolist() == picks
    assert record.uploads.tolist() == uploads


@pytest.mark.parametrize("name", CLUSTERED)
def test_finding_out_who_is_alike_beats_one_group_for_all(name) -> None:
    numbers = Hyperparameters(beta_ms=0.0)
    world = make_world("unlabelled", "resnet50", 10)
    regret = {}
    for policy in (name, "fedlinucb"):
        what = Settings("resnet50", policy, "unlabelled", 10, 1000, hyperparameters=numbers)
        regret[policy] = play_settings(what, "reference", 5, world).regret_ms.sum()
    assert regret[name] < 0.5 * regret["fedlinucb"]


def test_quantiles_of_chi_square() -> None:
    exact = {1: 6.635, 3: 11.345, 10: 23.209, 25: 44.314}
    for freedom, value in exact.items():
        assert float(chi_square_quantile(np.array(freedom))) == pytest.approx(value, rel=0.02)


@pytest.mark.parametrize("name", CLUSTERED)
def test_a_clustered_bandit_has_no_radius_of_theory(name) -> None:
    assert policy_named(name).simulation_only
    with pytest.raises(InputError, match="beta_ms"):
        simulate(
            "resnet50", name, rounds=5, seeds=1, hyperparameters=Hyperparameters(beta_ms="theory")
        )
