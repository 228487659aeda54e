"""Worlds that no line fits: layers whose time is not in proportion to what is counted of them.

A network cut layer by layer is rarely linear in its MACs: depthwise and memory-bound layers take
several times what their MACs say, a server has a least time, and neighbouring points end up within
a few per cent of each other. The factors of the layers belong to a world and are the same in every
run; several worlds have other ones, so that a learner cannot be tuned to one set. As in traces, the
features are MACs, crossing bytes and a constant for the exchange; `accelerator` has them by class
of work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.learning.table import PROBE_BYTES, PartitionTable
from cans.simulation.worlds.backbones import load_table
from cans.simulation.worlds.layered import (
    TIERS,
    Machine,
    layered_world,
)
from cans.simulation.worlds.world import Noise, World

COMMON, OWN = 0.5, 0.2
"""Spread of a layer's factor (of its logarithm): what all machines share, and each has on top."""

LEAST_SERVER_MS = 3.0
SERVER, MBPS, DEEPEST = 10.0, 200.0, 3.5


def accelerator(model: str, devices: int) -> World:
    """Devices convolve faster than the server, and do everything else slower."""
    front = {
        "orin-nano": Machine(2e12, 2e10, 2e10, 4e9, 20e-6),
        "xavier-nx": Machine(1e12, 1e10, 1e10, 3e9, 30e-6),
        "rpi5": Machine(5e11, 5e9, 6e9, 2e9, 30e-6),
    }
    return _by_class(model, devices, front, Machine(1e10, 1e12, 5e11, 4e11, 10e-6), 1000.0)


def _by_class(
    model: str, devices: int, front: dict[str, Machine], server: Machine, mbps: float
) -> World:
    """`layered` on machines that convolve at `macs` and multiply matrices at `attention`."""
    world = layered_world("accelerator", model, devices, {"default": mbps})
    points = load_table(model, "rich")[0]["points"]

    def takes(machine: Machine, side: str) -> list[float]:
        return [_class_ms(machine, point[side]) for point in points]

    return replace(
        world,
        front_ms=np.array([takes(front[tier], "front") for tier in TIERS]),
        server_ms=np.tile(takes(server, "back"), (len(TIERS), 1)),
    )


def _class_ms(machine: Machine, half: dict[str, dict[str, float]]) -> float:
    macs = half["macs"]
    matrices = {**half, "macs": {**macs, "linear": 0.0, "attention": macs["attention"]}}
    return machine.milliseconds(matrices) + 1e3 * macs["linear"] / machine.attention


def bent(model: str, devices: int, draw: int = 1) -> World:
    """Tensors that shrink as in a mobile network, layers that take several times what their MACs
    say, a least time of the server, near-ties."""
    return _bent(f"bent-{draw}", model, devices, draw)


def slow_server(model: str, devices: int) -> World:
    """`bent`, with a server hardly faster than a device."""
    return _bent("slow-server", model, devices, 4, server=40.0)


def heavy_tailed(model: str, devices: int) -> World:
    """`bent` on Wi-Fi: one exchange in ten stalls, now and then for many times as long."""
    world = _bent("heavy-tailed", model, devices, 5, mbps=100.0)
    return replace(world, noise=Noise.HEAVY_TAILED)


def near_ties(model: str, devices: int) -> World:
    """Machines that are alike, on a fast link: most points within a few per cent of each other."""
    world = layered_world("near-ties", model, devices, {"default": 10_000.0})
    rng = np.random.default_rng(6)
    alone = world.front_ms[1]
    pace = np.array([[1.0], [1.04], [0.96]])
    front = pace * _layer_by_layer(alone, _factors(rng, world, 0.2))
    server = _layer_by_layer(alone[-1] - alone[::-1], _factors(rng, world, 0.2)[::-1])[::-1]
    table = few_features(model)
    return replace(world, table=table, front_ms=front, server_ms=np.tile(server, (3, 1)))


def _bent(
    name: str,
    model: str,
    devices: int,
    draw: int,
    *,
    server: float = SERVER,
    mbps: float = MBPS,
) -> World:
    """`layered`, every layer's time times a factor of its own; the server takes `server` times as
    long, and never less than its least time."""
    world = layered_world(name, model, devices, {"default": mbps})
    rng = np.random.default_rng(draw)
    common = _factors(rng, world, COMMON)
    front = [_layer_by_layer(each, common * _factors(rng, world, OWN)) for each in world.front_ms]
    behind = server * world.server_ms[0, ::-1]
    behind = _layer_by_layer(behind, (common * _factors(rng, world, OWN))[::-1])[::-1]
    behind = np.where(world.server_ms[0] > 0, np.maximum(behind, LEAST_SERVER_MS), 0.0)
    # Tensors shrink with depth, to a thirtieth, and some are wider than those before them.
    table = few_features(model)
    depth = np.linspace(0.0, 1.0, table.choices)
    share = np.exp(-DEEPEST * depth + rng.normal(0.0, OWN, table.choices))
    share = np.where(world.link_ms[0] > 0, share / share[0], 0.0)
    link = np.column_stack([share / share.max(), table.link[:, 1]])
    sizes = share * table.bytes_of[0]
    probe = np.array([[sent / sizes.max(), 1.0] for sent in PROBE_BYTES])
    return replace(
        world,
        table=replace(table, link=link, bytes_of=sizes.astype(int).tolist(), probe=probe),
        front_ms=np.array(front),
        link_ms=np.tile(world.link_ms[0, 0] * share, (len(front), 1)),
        server_ms=np.tile(behind, (len(front), 1)),
    )


def _factors(rng: np.random.Generator, world: World, spread: float) -> Array:
    """A factor of mean one for the layers between each point and the next."""
    return np.exp(rng.normal(-(spread**2) / 2, spread, world.table.choices - 1))


def _layer_by_layer(milliseconds: Array, factors: Array) -> Array:
    """Times of growing prefixes, every step from one to the next times its factor."""
    steps = np.diff(milliseconds) * factors
    times: Array = milliseconds[0] + np.concatenate([[0.0], np.cumsum(steps)])
    return times


@cache
def few_features(model: str) -> PartitionTable:
    """The features that a trace has: MACs, crossing bytes and a constant, MACs."""
    (_, macs), (_, rich) = load_table(model, "mac3"), load_table(model, "rich")
    return replace(macs, link=rich.link, probe=rich.probe, names={}, version="few")


def _draw(number: int) -> Callable[[str, int], World]:
    def made(model: str, devices: int) -> World:
        return bent(model, devices, number)

    made.__doc__ = f"`bent-1` with other factors of the layers: draw {number}."
    return made


BENT: dict[str, Callable[[str, int], World]] = {
    "accelerator": accelerator,
    "bent-1": bent,
    "bent-2": _draw(2),
    "bent-3": _draw(3),
    "slow-server": slow_server,
    "near-ties": near_ties,
    "heavy-tailed": heavy_tailed,
}
"""All of them by name."""
