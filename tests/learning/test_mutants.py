"""Switching off what policy `cans` is made of shows in its picks.

Each mutant below changes one function of the learner. The object loop's picks in a world where that
function matters must then differ from those of the transcription `tests/reference_cans.py`, which
the unchanged learner equals. `make mutants` tries every small change, and takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from random_worlds import sudden_change, world_of
from test_reference_cans import by_the_reference

import reference_cans
from cans.learning.arithmetic import estimating, layout, observing, pooling
from cans.learning.arithmetic.viability import offered_choices
from cans.learning.laws.tiny_fleet import random_table
from cans.learning.policies import POLICIES, Hyperparameters
from cans.simulation.engines.reference import play
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.named import make_world
from cans.simulation.worlds.world import Noise, World

variance_from = estimating.variance_from

MUTANTS: dict[str, tuple[object, str, Callable[..., object] | float]] = {
    "no pruning": (layout, "viable_choices", offered_choices),
    "no carry-over": (
        pooling, "carried_over", lambda pool, upload, ridge: np.zeros_like(pool)),
    "no trust": (pooling, "trust", lambda residual: 1.0),
    "no pace": (estimating, "pace_from", lambda *given: 1.0),
    "no floors": (estimating, "highest_floors", lambda low, floor, sources: low),
    "no detector": (pooling, "alarmed", lambda alarm, residual, observations, room: False),
    "nothing surprises": (observing, "SURPRISING", np.inf),
    "noise nine times too large": (
        estimating, "variance_from", lambda *given: 9.0 * variance_from(*given)),
}  # fmt: skip


def random_scene(seed: int) -> World:
    """Unequal devices, a liar, and a link that becomes slower."""
    rng = np.random.default_rng(seed)
    return world_of(
        random_table(rng.random, 12, (2, 2, 2)),
        4,
        rng,
        noise=Noise.LOGNORMAL,
        noise_level=0.1,
        gamma=0.3,
        liars={3: 5.0},
        drift=sudden_change((1.0, 4.0, 1.0), 0.5),
    )


@cache
def scenes() -> list[tuple[World, Episode, list[int]]]:
    """Worlds in which every ingredient matters, and the transcription's picks there."""
    found = []
    for world, rounds in (
        (random_scene(0), 150),
        (random_scene(1), 150),
        (make_world("cells", "resnet50", 4), 150),
        (make_world("layered", "vgg16", 4), 150),
        (make_world("drifting", "resnet50", 4), 250),
    ):
        episode = world.episode(rounds, 0, 5, offline_whole=True)
        picks, _ = by_the_reference(world, episode, reference_cans.Numbers())
        found.append((world, episode, picks))
    return found


def scenes_that_differ() -> int:
    return sum(
        play(world, POLICIES["cans"], Hyperparameters(), episode).picks.tolist() != picks
        for world, episode, picks in scenes()
    )


def test_unchanged_it_equals_the_reference() -> None:
    assert scenes_that_differ() == 0


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_noticed(name, monkeypatch) -> None:
    scenes()  # before anything is changed
    monkeypatch.setattr(*MUTANTS[name])
    assert scenes_that_differ(), f"{name}: the picks are those of the reference"
