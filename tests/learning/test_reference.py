"""The policies of the paper equal the slow transcription in `tests/reference.py`, pick by pick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_worlds import world_of

import reference
from cans.learning.laws import random_table
from cans.learning.policies import POLICIES, Hyperparameters
from cans.simulation.engines.reference import play
from cans.simulation.worlds.named import make_world
from cans.simulation.worlds.world import World


def in_the_papers_words(name: str, world: World, episode, numbers: Hyperparameters):
    """The reference's picks and uploads in this episode."""
    table = world.table
    x_f, x_b = table.columns(("front",)), table.columns(("link", "server"))
    offline = [
        list(zip(choices, latencies, strict=True))
        for choices, latencies in zip(episode.offline_choice, episode.offline_ms, strict=True)
    ]
    nothing: list[list] = [[] for _ in offline]
    ridge, alpha, beta = numbers.ridge, numbers.alpha, numbers.beta_ms
    active = episode.active

    def measure(t: int, p: int) -> tuple[float, float]:
        front, link, server = world.segments_ms(active[t])
        noise = episode.shift[t]
        l_f = front[p] * episode.scale[t, 0] + noise[0] if p > 0 else 0.0
        l_b = link[p] + server[p] + noise[1] + noise[2] if p < table.local else 0.0
        return l_f, l_b

    own = (x_f, x_b, active, measure)
    match name:
        case "fedlinucb-dw" | "fedlinucb-decouple":
            known = offline if name == "fedlinucb-dw" else nothing
            types = world.type_of.tolist()
            return reference.fedlinucb_dw(
                x_f, x_b, types, active, measure, known, ridge, alpha, beta
            )
        case "fedlinucb":
            return reference.fedlinucb(*own, world.devices, ridge, alpha, beta)
        case "linucb":
            return reference.linucb(*own, nothing, ridge, beta)
        case "warmstart-linucb":
            return reference.linucb(*own, offline, ridge, beta)
        case "linucb-warmstart":
            return reference.linucb_warmstart(*own, offline, ridge, beta)
    raise AssertionError(name)


PAPER = (
    "fedlinucb-dw",
    "fedlinucb-decouple",
    "fedlinucb",
    "linucb",
    "warmstart-linucb",
    "linucb-warmstart",
)


@pytest.mark.parametrize("name", PAPER)
@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32),
    ridge=st.floats(0.005, 4.0).filter(lambda value: abs(value - 1) > 0.01),
    alpha=st.floats(0.05, 5.0),
    beta=st.floats(0.1, 200.0),
    devices=st.integers(1, 5),
    choices=st.integers(3, 12),
    widths=st.tuples(*[st.integers(1, 2)] * 3),
)
def test_equals_the_reference(name, seed, ridge, alpha, beta, devices, choices, widths) -> None:
    rng = np.random.default_rng(seed)
    numbers = Hyperparameters(ridge=ridge, alpha=alpha, beta_ms=beta, offline_runs=3)
    world = world_of(random_table(rng.random, choices, widths), devices, rng)
    episode = world.episode(150, seed, numbers.offline_runs)
    record = play(world, POLICIES[name], numbers, episode)
    picks, uploads = in_the_papers_words(name, world, episode, numbers)
    assert record.picks.tolist() == picks
    assert record.uploads.tolist() == uploads


@pytest.mark.parametrize("name", PAPER)
def test_equals_the_reference_in_the_papers_world(name) -> None:
    world = make_world("paper", "resnet50", 25, gamma=0.2)
    numbers = replace(Hyperparameters(), ridge=0.02, alpha=0.7, beta_ms=40.0)
    episode = world.episode(400, 7, numbers.offline_runs)
    record = play(world, POLICIES[name], numbers, episode)
    picks, uploads = in_the_papers_words(name, world, episode, numbers)
    assert record.picks.tolist() == picks
    assert record.uploads.tolist() == uploads
    assert len(set(picks)) > 2, "nothing was learned: the comparison says nothing"
