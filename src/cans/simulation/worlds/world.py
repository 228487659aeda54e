"""`World`: what every choice really costs each device, and how it is disturbed.

A world is data: expected milliseconds of the three segments for every choice. `episode` draws all
that happens in one run up front, so that every policy and every engine sees the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, IntArray
from cans.learning.table import PartitionTable
from cans.simulation.worlds.episode import Episode, draw_episode


class Noise(StrEnum):
    """How a measured latency differs from the expected one."""

    GAUSSIAN = "gaussian"  # the paper: may turn a latency negative
    TRUNCATED = "truncated"  # the same, but what would be negative is zero
    LOGNORMAL = "lognormal"  # a factor with mean one
    HEAVY_TAILED = "heavy-tailed"  # the same, and now and then a link takes many times as long

    @property
    def relative(self) -> bool:
        """Whether its level is a share of the latency, not milliseconds."""
        return self in (Noise.LOGNORMAL, Noise.HEAVY_TAILED)


class Gamma(StrEnum):
    """When a device's speed g × U(1-gamma, 1+gamma) is drawn."""

    DEVICE = "device"  # once: devices of one type differ
    ROUND = "round"  # every round: each device fluctuates


class Participation(StrEnum):
    UNIFORM = "uniform"  # the active device is drawn anew every round
    ROUND_ROBIN = "round-robin"


Drift = Callable[["World", IntArray, np.random.Generator], Array]
"""(world, active device of every round, dice) -> factor of front, link, server for every round."""


@dataclass(frozen=True, eq=False)
class World:
    """Expected latencies in milliseconds, who the devices are, and the noise.

    A *place* is a device type on a network: all that expected latency depends on.
    """

    name: str
    table: PartitionTable
    types: tuple[str, ...]
    networks: tuple[str, ...]
    type_of: IntArray  # (devices,)
    network_of: IntArray  # (devices,)
    place_of: IntArray  # (devices,)
    front_ms: Array  # (places, choices)
    link_ms: Array  # (places, choices): the share that a slower link stretches
    link_fixed_ms: Array  # (choices,): the share that it does not
    server_ms: Array  # (places, choices)
    probe_ms: (
        Array  # (places, 2): a small timed exchange, what a slower link stretches and the rest
    )
    allowed: BoolArray  # (places, choices)
    noise: Noise = Noise.GAUSSIAN
    noise_level: float = 5.0  # milliseconds per half (Gaussian), or a share (lognormal)
    gamma: float = 0.0
    gamma_mode: Gamma = Gamma.DEVICE
    participation: Participation = Participation.UNIFORM
    drift: Drift | None = None  # how the three segments' scales move from round to round
    liars: Mapping[int, float] = field(default_factory=dict)  # device -> factor on what it reports
    samples: Array = field(default_factory=lambda: np.zeros((0, 0, 0, 3)))
    sample_count: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    # (places, choices, most, 3) measured rounds to draw from instead of noise, and how many
    delay: int = 0  # rounds of a device before it hears how one of its own went: requests in flight
    sizes: tuple[World, ...] = ()  # of the input, this world at each; empty: it has one size

    def __post_init__(self) -> None:
        # Compiled code does not check its indices: what it is given must fit.
        places, choices = len(self.front_ms), self.table.choices
        for name, shape in {
            "network_of": (self.devices,),
            "place_of": (self.devices,),
            "front_ms": (places, choices),
            "link_ms": (places, choices),
            "link_fixed_ms": (choices,),
            "server_ms": (places, choices),
            "probe_ms": (places, 2),
            "allowed": (places, choices),
        }.items():
            if getattr(self, name).shape != shape:
                found = getattr(self, name).shape
                raise ValueError(f"{name} of world {self.name!r} must be {shape}, not {found}")
        for name, count in {
            "type_of": len(self.types),
            "network_of": len(self.networks),
            "place_of": places,
        }.items():
            values = getattr(self, name)
            if len(values) == 0 or values.min() < 0 or values.max() >= count:
                raise ValueError(f"{name} of world {self.name!r} must lie in 0 .. {count - 1}")
        if not self.allowed.any(axis=1).all():
            raise ValueError(f"world {self.name!r} has a place where nothing is allowed")

    @property
    def devices(self) -> int:
        return len(self.type_of)

    @property
    def report(self) -> Array:
        """(devices,) what a device reports of a millisecond: 1, or a lie."""
        honest = np.ones(self.devices)
        for device, factor in self.liars.items():
            honest[device] = factor
        return honest

    def segments_ms(self, device: int) -> tuple[Array, Array, Array]:
        """Nominal front, link and server milliseconds of every choice for one device."""
        place = self.place_of[device]
        link = self.link_fixed_ms + self.link_ms[place]
        return self.front_ms[place], link, self.server_ms[place]

    def at(self, draw: float) -> tuple[World, float]:
        """This world at the size of the input that a uniform draw says, each as often, and a draw
        that is left for something else."""
        if not self.sizes:
            return self, draw
        size, rest = divmod(draw * len(self.sizes), 1.0)
        return self.sizes[int(size)], rest

    def episode(
        self,
        rounds: int,
        seed: int,
        offline_runs: int = 5,
        normals: int = 0,
        offline_whole: bool = False,
    ) -> Episode:
        """All that happens in one run of this world."""
        rng = np.random.default_rng(seed)
        return draw_episode(self, rounds, rng, offline_runs, normals, offline_whole)
