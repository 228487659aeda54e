"""What is spelled for the compiler returns what its NumPy spelling does, to the last bit."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from cans.learning.arithmetic import (
    estimating,
    exchange,
    linear,
    nonnegative,
    observing,
    pooling,
    scoring,
)
from cans.learning.arithmetic.by_choice import bending, looks
from cans.learning.policies import Hyperparameters, policy_named
from cans.simulation.engines import loops, reference
from cans.simulation.worlds.named import make_world

PARTS, SIZE, CHOICES = 3, 5, 7
rng = np.random.default_rng(1)
square = rng.normal(size=(SIZE, SIZE))
definite = square @ square.T + 1e-6 * np.eye(SIZE)
lower = np.linalg.cholesky(definite)
vectors = rng.normal(size=(PARTS, SIZE))
matrices = rng.normal(size=(PARTS, SIZE, SIZE))

GIVEN = {
    "times": (rng.normal(size=(CHOICES, SIZE)), vectors[0]),
    "cholesky": (definite,),
    "squared": (square,),
    "inverse_root": (definite,),
    "inverse_from": (lower,),
    "observation_of": (rng.random(9), rng.random(9), 0.3, 7.0),
    "any_exceeds": (np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 2.0]), 1.9),
    "lowest": (np.array([3.0, 1.0, 2.0, 1.0 + 1e-12, np.inf]),),
    "each_solution": (matrices, vectors),
    "each_form": (rng.normal(size=(2, PARTS, SIZE, SIZE)), vectors),
    "each_dot": (rng.normal(size=(2, PARTS, SIZE)), vectors),
    "each_combined": (rng.normal(size=(SIZE, PARTS, CHOICES)), vectors),
    "learn_rows": (
        matrices,
        rng.random((PARTS, CHOICES)) + 9.0,
        vectors,
        rng.normal(size=(SIZE, PARTS, CHOICES)),
    ),
    "pinned": (rng.normal(size=SIZE), definite),
    "over_parts": (rng.normal(size=(PARTS, CHOICES)),),
    "norms": (lower, rng.normal(size=(SIZE, CHOICES))),
    "apply_floors": (
        np.maximum(rng.normal(size=(PARTS, CHOICES)), 0.0),
        rng.random((PARTS, CHOICES, CHOICES)),
        rng.random(CHOICES) < 0.5,
    ),
    "lowest_ceilings": (rng.random(CHOICES), np.eye(CHOICES) + (rng.random((7, 7)) < 0.3)),
    "highest_floors": (
        np.maximum(rng.normal(size=(PARTS, CHOICES)), 0.0),
        rng.random((3, PARTS, CHOICES)),
        np.array([0, 3, 6]),
    ),
}
IN_PLACE = {"learn_rows"}
ONLY_HERE = {"triangle_inverse"}  # a step of others


def spelled() -> set[str]:
    functions = inspect.getmembers(loops, inspect.isfunction)
    return {name for name, function in functions if function.__module__ == loops.__name__}


def test_everything_that_is_spelled_twice_is_compared() -> None:
    assert spelled() == GIVEN.keys() | ONLY_HERE


@pytest.mark.parametrize("name", GIVEN)
def test_loops_equal_array_expressions(name) -> None:
    homes = (linear, nonnegative, observing, estimating, bending)
    expression = next(getattr(each, name) for each in homes if hasattr(each, name))
    given = GIVEN[name]
    ours, theirs = ([np.copy(array) for array in given] for _ in range(2))
    np.testing.assert_array_equal(getattr(loops, name)(*ours), expression(*theirs))
    for each, other, before in zip(ours, theirs, given, strict=True):
        np.testing.assert_array_equal(each, other)
        if name not in IN_PLACE:
            np.testing.assert_array_equal(each, before)


def played(world_name: str, model: str, devices: int):
    policy, world = policy_named("cans"), make_world(world_name, model, devices)
    episode = world.episode(250, 40502, 1, offline_whole=True)
    return reference.play(world, policy, Hyperparameters(), episode, immediate=False)


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize(("world", "model"), [("drifting", "vit_b16"), ("layered", "vgg16")])
def test_a_run_with_loops_is_the_same_run(world, model, devices, monkeypatch) -> None:
    """Where a condition of 1e12 turns another order of the same sums into another upload."""
    expressions = played(world, model, devices)
    for module in (linear, observing, estimating, bending, scoring, looks, exchange, pooling):
        for name in GIVEN:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(loops, name))
    with_loops = played(world, model, devices)
    for field in ("picks", "uploads", "downloads", "error_ms"):
        np.testing.assert_array_equal(getattr(with_loops, field), getattr(expressions, field))
