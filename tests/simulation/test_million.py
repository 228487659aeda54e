"""A million devices fit in memory, and a round costs no more than with few."""

from __future__ import annotations

import pytest

from cans.learning.policies import Hyperparameters, policy_named
from cans.simulation.engines.arrays import lay_out, new_record
from cans.simulation.run import play_fleet
from cans.simulation.worlds.named import make_world


@pytest.mark.slow
def test_a_million_devices(compiled) -> None:
    devices, rounds = 1_000_000, 5000
    world = make_world("paper", "vgg16", devices)
    policy = policy_named("fedlinucb-dw")
    episode = world.episode(rounds, 0, 5)
    fleet = lay_out(world, policy, Hyperparameters(), None, True)
    held = sum(getattr(array, "nbytes", 0) for array in fleet.state)
    assert held < 8e9 / 2
    record = new_record(rounds, len(policy.parts))
    play_fleet(fleet, episode, record, compiled)
    assert record.regret_ms.sum() > 0
    assert record.uploads.sum() > 0
    # conservation at scale: every offline run and observation is in a pool or a buffer
    for part, offline in ((0, 5 * devices), (1, 0)):
        informative = int(fleet.state.informative[part][record.picks].sum())
        counted = fleet.pools.statistics[:, part, -1].sum() + fleet.state.local[:, part, -1].sum()
        assert counted == offline + informative
