"""Worlds: what every choice really costs each device, and how it is disturbed.

A world is data: expected milliseconds of the three segments for every choice. `episode` draws all
that happens in one run up front, so that every policy and every engine sees the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

import numpy as np

from cans.errors import InputError, unknown_name
from cans.learning.state import Array, BoolArray, IntArray
from cans.learning.table import PartitionTable
from cans.simulation.episode import Episode, draw_episode
from cans.simulation.tables import load_table

Kind = TypeVar("Kind", bound=StrEnum)


class Noise(StrEnum):
    """How a measured latency differs from the expected one."""

    GAUSSIAN = "gaussian"  # the paper: may turn a latency negative
    TRUNCATED = "truncated"  # the same, but what would be negative is zero
    LOGNORMAL = "lognormal"  # a factor with mean one


class Gamma(StrEnum):
    """When a device's speed g × U(1-gamma, 1+gamma) is drawn."""

    DEVICE = "device"  # once: devices of one type differ
    ROUND = "round"  # every round: each device fluctuates


class Participation(StrEnum):
    UNIFORM = "uniform"  # the active device is drawn anew every round
    ROUND_ROBIN = "round-robin"


Drift = Callable[["World", IntArray, np.random.Generator], Array]
"""(world, active device of every round, dice) -> factor of front, link, server for every round."""

PROBE_BYTES = 8192


@dataclass(frozen=True, eq=False)
class World:
    """Expected latencies in milliseconds, who the devices are, and the noise."""

    name: str
    table: PartitionTable
    types: tuple[str, ...]
    type_of: IntArray  # (devices,)
    front_ms: Array  # (types, choices)
    link_ms: Array  # (networks, choices): the share that a slower link stretches
    server_ms: Array  # (choices,)
    link_fixed_ms: Array  # (choices,): the share that it does not
    networks: tuple[str, ...] = ("default",)
    network_of: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    noise: Noise = Noise.GAUSSIAN
    noise_level: float = 5.0  # milliseconds per half (Gaussian), or a share (lognormal)
    gamma: float = 0.0
    gamma_mode: Gamma = Gamma.DEVICE
    participation: Participation = Participation.UNIFORM
    drift: Drift | None = None  # how the three segments' scales move from round to round
    probe_ms: Array = field(default_factory=lambda: np.zeros((1, 2)))
    # (networks, 2): of a small timed exchange, the share that a slower link stretches, and the rest
    report: Array = field(default_factory=lambda: np.zeros(0))  # (devices,) 1, or a lie's factor
    allowed: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    samples: Array = field(default_factory=lambda: np.zeros((0, 0, 0, 0, 3)))
    sample_count: IntArray = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.int64))

    def __post_init__(self) -> None:
        defaults: dict[str, object] = {}
        if not self.network_of.size:
            defaults["network_of"] = np.zeros(self.devices, dtype=np.int64)
        if not self.report.size:
            defaults["report"] = np.ones(self.devices)
        if not self.allowed.size:
            defaults["allowed"] = np.ones(self.front_ms.shape, dtype=np.bool_)
        for name, value in defaults.items():
            object.__setattr__(self, name, value)

    @property
    def devices(self) -> int:
        return len(self.type_of)

    def segments_ms(self, device: int) -> tuple[Array, Array, Array]:
        """Nominal front, link and server milliseconds of every choice for one device."""
        link = self.link_fixed_ms + self.link_ms[self.network_of[device]]
        return self.front_ms[self.type_of[device]], link, self.server_ms

    def episode(self, rounds: int, seed: int, offline_runs: int = 5, normals: int = 0) -> Episode:
        """All that happens in one run of this world."""
        return draw_episode(self, rounds, np.random.default_rng(seed), offline_runs, normals)


TIERS = {"orin-nano": 0.3, "xavier-nx": 0.4, "rpi5": 0.3}
"""The paper's three device types and their shares of the fleet."""


def fleet(devices: int) -> IntArray:
    """The type of every device: shares of TIERS by largest remainder (25 -> 8, 10, 7)."""
    shares = np.array(list(TIERS.values())) * devices
    counts = np.floor(shares).astype(int)
    remainders = shares - counts
    for index in np.argsort(-remainders, kind="stable")[: devices - counts.sum()]:
        counts[index] += 1
    return np.repeat(np.arange(len(counts)), counts)


def _mac_world(name: str, model: str, devices: int, *, size_per_element: float) -> World:
    """MAC/f and size/B, the paper's simulation (section V-B)."""
    document, table = load_table(model, "mac3")
    front = np.array([_macs(point["front"]) for point in document["points"]])
    back = np.array([_macs(point["back"]) for point in document["points"]])
    size = np.array([point["bytes"] / 4 for point in document["points"]]) * size_per_element
    speed = np.array([20e12, 10.5e12, 75e9])  # MAC/s: Orin Nano, Xavier NX, Raspberry Pi 5
    return World(
        name=name,
        table=table,
        types=tuple(TIERS),
        type_of=fleet(devices),
        front_ms=1e3 * front / speed[:, None],
        link_ms=1e3 * size[None, :] / 1e7,
        server_ms=1e3 * back / 312e12,
        link_fixed_ms=np.zeros(table.choices),
        probe_ms=np.array([[1e3 * size_per_element * PROBE_BYTES / 4 / 1e7, 0.0]]),
    )


def _macs(half: dict[str, dict[str, float]]) -> float:
    macs = half["macs"]
    return macs["conv"] + macs["linear"] + macs["attention"]


def paper(model: str, devices: int) -> World:
    """Sizes in elements over 1e7 per second: the reading under which the paper's figures appear."""
    return _mac_world("paper", model, devices, size_per_element=1.0)


def literal(model: str, devices: int) -> World:
    """Sizes in float32 bits over 10 Mbps, as printed: local inference is best everywhere."""
    return _mac_world("literal", model, devices, size_per_element=32.0)


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


MACHINES = {
    "orin-nano": Machine(1.2e12, 6e11, 4e10, 68e9, 20e-6),
    "xavier-nx": Machine(5e11, 2.5e11, 2e10, 51e9, 30e-6),
    "rpi5": Machine(6e10, 3e10, 6e9, 12e9, 10e-6),
}
EDGE_SERVER = Machine(1e13, 5e12, 1e12, 1.5e12, 10e-6)


def layered(model: str, devices: int) -> World:
    """Layer-type speeds, memory-bound weights and per-operation cost; 200 Mbps plus 1 ms."""
    document, table = load_table(model, "rich")
    points = document["points"]
    crossing = np.array([point["bytes"] for point in points], dtype=float)
    return World(
        name="layered",
        table=table,
        types=tuple(TIERS),
        type_of=fleet(devices),
        front_ms=np.array(
            [[MACHINES[tier].milliseconds(point["front"]) for point in points] for tier in TIERS]
        ),
        link_ms=1e3 * 8 * crossing[None, :] / 200e6,
        server_ms=np.array([EDGE_SERVER.milliseconds(point["back"]) for point in points]),
        link_fixed_ms=np.where(crossing > 0, 1.0, 0.0),
        probe_ms=np.array([[1e3 * 8 * PROBE_BYTES / 200e6, 1.0]]),
        noise=Noise.LOGNORMAL,
        noise_level=0.1,
    )


WORLDS: dict[str, Callable[[str, int], World]] = {
    "paper": paper,
    "literal": literal,
    "layered": layered,
}


def make_world(
    name: str,
    model: str,
    devices: int,
    *,
    gamma: float = 0.0,
    gamma_mode: str = Gamma.DEVICE,
    noise: str | None = None,
    participation: str = Participation.UNIFORM,
) -> World:
    """The world of this name, with the user's changes; bad values are errors that say why."""
    if name not in WORLDS:
        raise unknown_name("world", name, WORLDS)
    if devices < 1:
        raise InputError(f"devices must be at least 1, not {devices}")
    if not 0 <= gamma < 1:
        raise InputError(f"gamma must be at least 0 and below 1, not {gamma}")
    world = WORLDS[name](model, devices)
    level = world.noise_level
    kind = world.noise if noise is None else _member(Noise, noise, "noise")
    if (kind is Noise.LOGNORMAL) is not (world.noise is Noise.LOGNORMAL):
        level = 0.1 if kind is Noise.LOGNORMAL else 5.0
    return replace(
        world,
        gamma=gamma,
        gamma_mode=_member(Gamma, gamma_mode, "gamma mode"),
        noise=kind,
        noise_level=level,
        participation=_member(Participation, participation, "participation"),
    )


def _member(enum: type[Kind], value: str, kind: str) -> Kind:
    try:
        return enum(value)
    except ValueError:
        raise unknown_name(kind, value, enum) from None
