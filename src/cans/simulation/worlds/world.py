"""`World`: what every choice really costs each device, and how it is disturbed.

A world is data: expected milliseconds of the three segments for every choice. `episode` draws all
that happens in one run up front, so that every policy and every engine sees the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cans.errors import InputError, unknown_name
from cans.learning.arithmetic.arrays import Array, BoolArray, IntArray
from cans.learning.plausibility import Limits
from cans.learning.policies import Policy
from cans.learning.table import SEGMENTS, PartitionTable
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


MOST_DEVICES = 1_000_000
MOST_ROUNDS = 100_000_000
"""Of one run: all its chance is drawn before it begins, 200 bytes a round."""


def check_devices(devices: int) -> None:
    """Raise if a fleet is none, or fits into no memory."""
    _within("devices", devices, MOST_DEVICES)


def check_rounds(rounds: int) -> None:
    """Raise if a run is none, or fits into no memory."""
    _within("rounds", rounds, MOST_ROUNDS)


def _within(name: str, value: int, most: int) -> None:
    if value < 1:
        raise InputError(f"{name} must be at least 1, not {value}")
    if value > most:
        raise InputError(f"{name} must be at most {most:,}, not {value:,}")


_NAMED = {"noise": Noise, "gamma_mode": Gamma, "participation": Participation}
Kind = TypeVar("Kind", bound=StrEnum)


def member(enum: type[Kind], value: str, kind: str) -> Kind:
    """The value of an enumeration that a user named."""
    try:
        return enum(value)
    except ValueError:
        raise unknown_name(kind, value, enum) from None


Drift = Callable[["World", IntArray, np.random.Generator], Array]
"""(world, active device of every round, random source) -> factors of front, link and server in
every round."""


@dataclass(frozen=True, eq=False)
class World:
    """Expected latencies in milliseconds, who the devices are, and the noise.

    A *place* is a device type on a network: all that expected latency depends on. Where that
    changes at some rounds (`starts`), the places of every period follow those of the one before.
    """

    name: str
    table: PartitionTable
    types: tuple[str, ...]
    networks: tuple[str, ...]
    type_of: IntArray  # (devices,)
    network_of: IntArray  # (devices,)
    place_of: IntArray  # (devices,) in the first period
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
    starts: tuple[int, ...] = (0,)  # the first round of each period
    sizes: tuple[World, ...] = ()  # of the input, this world at each; empty: it has one size

    def __post_init__(self) -> None:
        for name, enum in _NAMED.items():  # from Python they may be strings
            object.__setattr__(self, name, member(enum, getattr(self, name), name))
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
        rising = all(one < next_ for one, next_ in pairwise(self.starts))
        if self.starts[:1] != (0,) or not rising or places % len(self.starts):
            raise ValueError(f"starts of world {self.name!r} must be rounds from 0 on, in order")
        for name, count in {
            "type_of": len(self.types),
            "network_of": len(self.networks),
            "place_of": self.places,
        }.items():
            values = getattr(self, name)
            if len(values) == 0 or values.min() < 0 or values.max() >= count:
                raise ValueError(f"{name} of world {self.name!r} must lie in 0 .. {count - 1}")
        if not self.allowed.any(axis=1).all():
            raise ValueError(f"world {self.name!r} has a place where nothing is allowed")

    @classmethod
    def of(
        cls,
        table: PartitionTable,
        *,
        devices: int,
        front_ms: Mapping[str, Sequence[float]],
        link_ms: Mapping[str, Sequence[float]],
        server_ms: Sequence[float],
        name: str = "described",
        **rest: Any,
    ) -> World:
        """A world as a user describes it: what every choice of a table takes each type of device,
        each network and the server, in milliseconds. Devices take the types in turn and, once
        all types had one, the next network. `rest`: other fields, such as `noise`.

        >>> table = PartitionTable("toy", ["input", "end"], front=[[0], [4]], link=[[2], [0]],
        ...                        server=[[4], [0]])
        >>> world = World.of(table, devices=4, front_ms={"slow": [0, 90], "fast": [0, 20]},
        ...                  link_ms={"wifi": [30, 0]}, server_ms=[10, 0])
        >>> [segment.tolist() for segment in world.segments_ms(1)]
        [[0.0, 20.0], [30.0, 0.0], [10.0, 0.0]]
        """
        check_devices(devices)
        if not front_ms or not link_ms:
            raise InputError("a world needs at least a type of device and a network")
        given = {"server_ms": server_ms}
        given |= {f"front_ms of {kind!r}": each for kind, each in front_ms.items()}
        given |= {f"link_ms of {kind!r}": each for kind, each in link_ms.items()}
        for what, values in given.items():
            array = np.asarray(values, dtype=np.float64)
            fits = array.shape == (table.choices,) and np.isfinite(array).all()
            if not fits or (array < 0).any():
                raise InputError(f"{what} must be {table.choices} milliseconds, none negative")
            if (array > Limits.highest_ms).any():
                raise InputError(
                    f"{what} must be at most {Limits.highest_ms:,.0f} (ten minutes), "
                    f"not {array.max():g}"
                )
        turn = np.arange(devices)
        type_of, network_of = turn % len(front_ms), turn // len(front_ms) % len(link_ms)
        kind, network = np.divmod(np.arange(len(front_ms) * len(link_ms)), len(link_ms))
        per_type, per_network = (
            np.array([list(each) for each in times.values()], dtype=np.float64)
            for times in (front_ms, link_ms)
        )
        return cls(
            name=name,
            table=table,
            types=tuple(front_ms),
            networks=tuple(link_ms),
            type_of=type_of,
            network_of=network_of,
            place_of=type_of * len(link_ms) + network_of,
            front_ms=per_type[kind],
            link_ms=per_network[network],
            **(
                {
                    "link_fixed_ms": np.zeros(table.choices),
                    "server_ms": np.tile(np.asarray(server_ms, dtype=np.float64), (len(kind), 1)),
                    "probe_ms": np.zeros((len(kind), 2)),
                    "allowed": np.ones((len(kind), table.choices), dtype=np.bool_),
                }
                | rest
            ),
        )

    @classmethod
    def from_toml(cls, path: str | PathLike[str], devices: int | None = None) -> World:
        """The world that a file describes (docs/worlds.md). `devices`: so many, in the file's
        proportions; None: as many as it says."""
        from cans.simulation.worlds.described import read_world  # which makes worlds

        return read_world(Path(path), devices)

    @property
    def devices(self) -> int:
        return len(self.type_of)

    @property
    def places(self) -> int:
        """How many there are in a period."""
        return len(self.front_ms) // len(self.starts)

    @property
    def report(self) -> Array:
        """(devices,) what a device reports of a millisecond: 1, or a lie."""
        honest = np.ones(self.devices)
        for device, factor in self.liars.items():
            honest[device] = factor
        return honest

    def told_per_ms(self, policy: Policy) -> Array:
        """(devices, segments) what is told of a millisecond: 1, or a device's lie. Where a policy
        has parts for the server alone, the server observes those by itself."""
        told = np.repeat(self.report[:, None], len(SEGMENTS), axis=1)
        if policy.of_server:
            told[:, SEGMENTS.index("server")] = 1.0
        return told

    def segments_ms(self, device: int) -> tuple[Array, Array, Array]:
        """Nominal front, link and server milliseconds of every choice for one device, in the first
        period."""
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
