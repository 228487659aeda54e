"""A recorded latency trace fed to the live loop over loopback gives the simulator's picks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from cans.learning import Choice, Hyperparameters, Latencies, policy_named
from cans.learning.plausibility import Limits
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.timing import Measured, Offline
from cans.simulation.engines.reference import expected_latency, measured_latency, play
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.named import World, make_world
from tests.live.running import running, terms
from tests.live.toy import example, toy

ROUNDS = 250


@dataclass
class Trace:
    """Hands a device the latencies that the simulator drew for this round and this choice."""

    world: World
    episode: Episode
    device: int
    round: int = 0

    def latencies(self, choice: Choice, measured: Measured) -> Latencies:
        expected = expected_latency(self.world, self.episode, self.round)[:, choice.row]
        return Latencies(
            *measured_latency(self.world, self.episode, self.round, choice.row, expected)
        )

    def offline(self, measured: Offline) -> Offline:
        choices = self.episode.offline_choice[self.device].tolist()
        latencies = self.episode.offline_ms[self.device].tolist()
        return list(zip(choices, latencies, strict=True))


@pytest.mark.parametrize(
    ("policy", "name", "delivery"),
    [
        # a `refresh` per round adopts every change, and would deliver what ought to wait
        ("cans-eager", "cells", "immediate"),
        ("fedlinucb-dw", "paper", "immediate"),
        ("fedlinucb-dw", "paper", "next-contact"),
        ("linucb", "paper", "immediate"),
        ("linucb", "paper", "next-contact"),
    ],
)
def test_pick_by_pick(policy: str, name: str, delivery: str, tmp_path: Path) -> None:
    world = make_world(name, "resnet50", 5)
    # Probes, and trials of what is idle, go by the real clock.
    world = replace(world, table=replace(world.table, probe=None))
    patient = replace(policy_named(policy), probe_after_s=inf)
    hyperparameters = Hyperparameters()
    fresh, whole = policy_named(policy).fresh, policy_named(policy).offline_whole
    episode = world.episode(ROUNDS, 3, hyperparameters.offline_runs, offline_whole=whole)
    nothing = np.zeros(0)  # of itself the live one would tell how fast it really is
    episode = episode._replace(server_choice=nothing.astype(int), server_ms=nothing)
    immediate = delivery == "immediate"
    simulated = play(world, patient, hyperparameters, episode, immediate=immediate)
    model = toy(size=8, table=replace(world.table, digest="replay"))
    anything = Limits(lowest_ms=-inf, highest_ms=inf)
    agreed = terms(policy, hyperparameters=hyperparameters, delivery=delivery, limits=anything)
    with running(model, terms=agreed) as server:
        traces = [Trace(world, episode, i) for i in range(world.devices)]
        devices = [
            Device(
                server.address, model, world.types[world.type_of[i]], hooks=Hooks(stopwatch=trace),
                network=world.networks[world.network_of[i]], state=tmp_path / str(i),
                name=f"device-{i}",
            )
            for i, trace in enumerate(traces)
        ]  # fmt: skip
        for device in devices:
            device.refresh()
        picks = []
        for t in range(ROUNDS):
            active = int(episode.active[t])
            traces[active].round = t
            if fresh:
                devices[active].refresh()
            devices[active].infer(example(size=8))
            devices[active].settle()
            last = devices[active].last
            assert last is not None
            picks.append(last.point)
        for device in devices:
            device.close()
    assert picks == simulated.picks.tolist()
    assert len(set(picks)) > 2
