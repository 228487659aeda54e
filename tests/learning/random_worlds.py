"""Worlds over random tables."""

from __future__ import annotations

import numpy as np

from cans.learning.table import PartitionTable
from cans.simulation.worlds.world import World


def world_of(table: PartitionTable, devices: int, rng: np.random.Generator, **rest) -> World:
    """A world whose true latencies are linear in a random table, with Gaussian noise unless `rest`
    says otherwise."""
    type_of = rng.integers(0, 2, devices)
    link, server = (each @ rng.uniform(1, 60, each.shape[1]) for each in (table.link, table.server))
    return World(
        name="random",
        table=table,
        types=("a", "b"),
        networks=("default",),
        type_of=type_of,
        network_of=np.zeros(devices, dtype=np.int64),
        place_of=type_of,
        front_ms=np.array([table.front @ rng.uniform(1, 90, table.front.shape[1]) for _ in "ab"]),
        link_ms=np.tile(link, (2, 1)),
        link_fixed_ms=np.zeros(table.choices),
        server_ms=np.tile(server, (2, 1)),
        probe_ms=np.zeros((2, 2)),
        allowed=np.ones((2, table.choices), dtype=np.bool_),
        **({"noise_level": 3.0} | rest),
    )


def sudden_change(factors: tuple[float, float, float], after: float):
    """A drift: front, link and server take so many times as long from this share of the run on."""

    def drift(world: World, active, rng: np.random.Generator):
        scale = np.ones((len(active), 3))
        scale[int(after * len(active)) :] = factors
        return scale

    return drift
