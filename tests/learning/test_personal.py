"""What only one device sees of a choice counts for that device alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cans.learning import PartitionTable
from cans.learning.arithmetic.by_choice import bending
from cans.learning.policies import POLICIES, Hyperparameters
from cans.simulation.engines import reference
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.worlds.world import Noise, Participation, World

WORK = np.linspace(0.0, 1.0, 8)
BEST, SECOND = 3, 4
DEVICES, EACH = 6, 300


def equal_but_for_one(longer: float) -> World:
    """Equal devices, but that the link of the best choice takes the first so many times as long."""
    link = np.array([300.0, 300, 300, 20, 26, 200, 200, 0])
    sent = link / link.max()
    table = PartitionTable(
        "eight",
        [f"point-{choice}" for choice in range(8)],
        front=WORK[:, None],
        link=np.column_stack([sent, sent > 0]),
        server=(1.0 - WORK)[:, None],
    )
    world = World.of(
        table,
        devices=DEVICES,
        front_ms={"pi": (200.0 * WORK).tolist()},
        link_ms={"wifi": link.tolist()},
        server_ms=(20.0 * (1.0 - WORK)).tolist(),
        noise=Noise.LOGNORMAL,
        noise_level=0.05,
        participation=Participation.ROUND_ROBIN,
    )
    other = link.copy()
    other[BEST] *= longer
    return replace(
        world,
        place_of=np.array([1, *[0] * (DEVICES - 1)]),
        link_ms=np.array([link, other]),
        **{
            name: np.repeat(getattr(world, name), 2, axis=0)
            for name in ("front_ms", "server_ms", "probe_ms", "allowed")
        },
    )


def played(world: World) -> Record:
    policy = POLICIES["cans"]
    episode = world.episode(DEVICES * EACH, 3, 5, offline_whole=True)
    return reference.play(world, policy, Hyperparameters(), episode)


def share_of(record: Record, device: int, choice: int) -> float:
    """Of the second half of a device's inferences, made with a choice."""
    picks = record.picks[record.active == device][EACH // 2 :]
    return float((picks == choice).mean())


def test_a_device_leaves_what_takes_it_alone_longer() -> None:
    record = played(equal_but_for_one(6.0))
    assert share_of(record, 0, SECOND) > 0.9
    assert share_of(record, 1, BEST) > 0.9, "the others are not kept from it"


def test_without_that_it_goes_by_what_the_others_measure(monkeypatch) -> None:
    monkeypatch.setattr(bending, "individualise", lambda *_: None)
    assert share_of(played(equal_but_for_one(6.0)), 0, SECOND) < 0.5


@pytest.mark.parametrize("longer", [1.0, 1.02])
def test_equal_devices_stay_together(longer: float) -> None:
    record = played(equal_but_for_one(longer))
    for device in range(DEVICES):
        assert share_of(record, device, BEST) > 0.9
