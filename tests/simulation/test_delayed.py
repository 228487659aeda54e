"""Worlds with delayed feedback: several requests of a device are on their way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cans import InputError, simulate
from cans.learning import Hyperparameters, policy_named
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.engines.reference import play
from cans.simulation.worlds.named import make_world

ROUNDS = 400


def played(
    policy: str, delay: int | None, world: str = "delayed", devices: int = 4, seed: int = 1
) -> Record:
    made = make_world(world, "resnet50", devices, delay=delay)
    method, numbers = policy_named(policy), Hyperparameters()
    width = max((made.table.columns(p.explains).shape[1] for p in method.parts), default=0)
    episode = made.episode(ROUNDS, seed, numbers.offline_runs, width, method.offline_whole)
    return play(made, method, numbers, episode)


def picks(*what: Any, **more: Any) -> np.ndarray:
    return np.array(played(*what, **more).picks)


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw", "linucb", "lints", "random", "ans"])
def test_no_delay_is_the_world_as_ever(policy: str) -> None:
    assert (picks(policy, 0) == picks(policy, None, "layered")).all()


def test_nothing_is_heard_before_the_delay_is_over() -> None:
    """One device that learns alone: up to the delay all that it knows is what it knew before."""
    delay = 20
    late, never = picks("linucb", delay, devices=1), picks("linucb", 1000, devices=1)
    assert (late[: delay + 1] == never[: delay + 1]).all()
    assert len(set(never)) == 1
    assert len(set(late)) > 1


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw"])
def test_what_is_heard_late_is_learned(policy: str) -> None:
    """A choice that is worth finding out is made again until it is heard of: a delay of three costs
    at most four times as much, in expectation (Joulani et al. 2013), and nothing once everything is
    known."""
    now, late = (
        np.array([played(policy, delay, seed=seed).regret_ms for seed in range(1, 9)])
        for delay in (0, 3)
    )
    assert late.sum() <= 4 * now.sum()
    assert late[:, -100:].mean() <= 2 * now[:, -100:].mean() + 1.0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="delay must be"):
        make_world("paper", "vgg16", 3, delay=-1)
    with pytest.raises(InputError, match="needs --engine reference"):
        simulate("vgg16", "cans", world="delayed", engine="fast", rounds=10, seeds=1)
    with pytest.raises(InputError, match="delayed feedback"):
        simulate("vgg16", "fclub", world="delayed", rounds=10, seeds=1)
