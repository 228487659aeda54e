"""World `layered` and what the worlds that vary it are made of: machines, links and the paper's
fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cans.learning.arithmetic.arrays import Array, IntArray
from cans.learning.table import PROBE_BYTES, PartitionTable
from cans.simulation.worlds.backbones import choices_of, load_table
from cans.simulation.worlds.world import Noise, World


def compose(
    name: str,
    table: PartitionTable,
    devices: int,
    *,
    front_ms: Array,  # (types, choices)
    link_ms: Array,  # (networks, choices)
    link_fixed_ms: Array,  # (choices,)
    server_ms: Array,  # (choices,)
    probe_ms: Array,  # (networks, 2)
    networks: tuple[str, ...] = ("default",),
    **rest: Any,
) -> World:
    """A world in which device type, network and server each contribute on their own.

    Devices are the paper's three tiers; they take the networks in turn.
    """
    type_of = fleet(devices)
    network_of = np.arange(devices) % len(networks)
    of_place = np.arange(len(TIERS) * len(networks))
    kind, network = of_place // len(networks), of_place % len(networks)
    return World(
        name=name,
        table=table,
        types=tuple(TIERS),
        networks=networks,
        type_of=type_of,
        network_of=network_of,
        place_of=type_of * len(networks) + network_of,
        front_ms=front_ms[kind],
        link_ms=link_ms[network],
        link_fixed_ms=link_fixed_ms,
        server_ms=np.tile(server_ms, (len(of_place), 1)),
        probe_ms=probe_ms[network],
        allowed=np.ones((len(of_place), table.choices), dtype=np.bool_),
        **rest,
    )


TIERS = {"orin-nano": 0.3, "xavier-nx": 0.4, "rpi5": 0.3}
"""The paper's three device types and their shares of the fleet."""


def fleet(devices: int) -> IntArray:
    """The type of every device: shares of TIERS (25 -> 8, 10, 7)."""
    return shared_out(np.array(list(TIERS.values())), devices)


def shared_out(shares: Array, devices: int) -> IntArray:
    """(devices,) the number of the share that each belongs to, by largest remainder."""
    wanted = shares * devices
    counts = np.floor(wanted).astype(int)
    remainders = wanted - counts
    for index in np.argsort(-remainders, kind="stable")[: devices - counts.sum()]:
        counts[index] += 1
    return np.repeat(np.arange(len(counts)), counts)


@dataclass(frozen=True)
class Machine:
    """Speeds of one kind of machine in world `layered`."""

    macs: float  # convolution and linear MAC/s
    attention: float  # attention MAC/s
    activation: float  # elements/s
    memory: float  # weight bytes/s
    per_op: float  # seconds

    def milliseconds(self, half: dict[str, dict[str, float]]) -> float:
        macs, operations = half["macs"], sum(half["ops"].values())
        seconds = (
            (macs["conv"] + macs["linear"]) / self.macs
            + macs["attention"] / self.attention
            + macs["activation"] / self.activation
            + float(half["weight_bytes"]) / self.memory  # type: ignore[arg-type]
            + operations * self.per_op
        )
        return 1e3 * seconds

    def coding_ms(self, elements: int) -> float:
        """Writing or reading numbers of fewer bits: a few passes over them."""
        return 1e3 * 4 * elements / self.activation


MACHINES = {
    "orin-nano": Machine(1.2e12, 6e11, 4e10, 68e9, 20e-6),
    "xavier-nx": Machine(5e11, 2.5e11, 2e10, 51e9, 30e-6),
    "rpi5": Machine(6e10, 3e10, 6e9, 12e9, 10e-6),
}
EDGE_SERVER = Machine(1e13, 5e12, 1e12, 1.5e12, 10e-6)


def layered(model: str, devices: int) -> World:
    """Layer-type speeds, memory-bound weights and per-operation cost; 200 Mbps plus 1 ms."""
    return layered_world("layered", model, devices, {"default": 200.0})


def layered_world(
    name: str,
    model: str,
    devices: int,
    mbps: Mapping[str, float],
    codecs: tuple[str, ...] = ("float32",),
    **rest: Any,
) -> World:
    document, table = load_table(model, "rich", codecs)
    points = document["points"]
    choices = choices_of(document, codecs)
    crossing = np.array(table.bytes_of, dtype=float)
    ms_per_byte = 1e3 * 8 / (1e6 * np.array(list(mbps.values())))[:, None]

    def takes(machine: Machine, side: str) -> list[float]:
        return [
            machine.milliseconds(points[choice.point][side])
            + (0.0 if choice.codec == "float32" else machine.coding_ms(choice.elements))
            for choice in choices
        ]

    return compose(
        name,
        table,
        devices,
        front_ms=np.array([takes(MACHINES[tier], "front") for tier in TIERS]),
        link_ms=crossing * ms_per_byte,
        server_ms=np.array(takes(EDGE_SERVER, "back")),
        link_fixed_ms=np.where(crossing > 0, 1.0, 0.0),
        probe_ms=np.hstack([PROBE_BYTES[0] * ms_per_byte, np.ones((len(mbps), 1))]),
        networks=tuple(mbps),
        noise=Noise.LOGNORMAL,
        noise_level=0.1,
        **rest,
    )
