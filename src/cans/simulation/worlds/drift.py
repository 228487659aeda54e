"""How a world moves: factors of the three segments from round to round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cans.learning.arithmetic.arrays import Array, IntArray

if TYPE_CHECKING:
    from cans.simulation.worlds.world import World

FAST_MBPS, SLOW_MBPS = 50.0, 2.0
OVERLOAD, OVERLOAD_ROUNDS = 8.0, 200
THROTTLE = 2.0
WALK, WALK_LIMIT = 0.01, 0.2  # of the bandwidth's logarithm, per round and at most


@dataclass(frozen=True)
class Step:
    """From one round to another some segments take so many times as long."""

    from_round: int
    until_round: int | None  # None: for good
    factors: tuple[float, float, float]  # of front, link and server
    type: int | None = None  # of the devices that it concerns; None: all
    network: int | None = None


@dataclass(frozen=True)
class Steps:
    """A drift that is a list of steps; where they overlap, both count."""

    steps: tuple[Step, ...]

    def __call__(self, world: World, active: IntArray, rng: np.random.Generator) -> Array:
        t = np.arange(len(active))
        scale = np.ones((len(active), 3))
        for each in self.steps:
            until = len(t) if each.until_round is None else each.until_round
            concerned = (t >= each.from_round) & (t < until)
            if each.type is not None:
                concerned &= world.type_of[active] == each.type
            if each.network is not None:
                concerned &= world.network_of[active] == each.network
            scale[concerned] *= each.factors
        return scale


def link_steps(rounds: int) -> tuple[int, int]:
    """When the link falls from fast to slow, and when it is back."""
    return rounds // 5, 2 * rounds // 5


def everything_moves(world: World, active: IntArray, rng: np.random.Generator) -> Array:
    """A bandwidth that wanders and twice changes at a stroke, an overloaded server for a while,
    and the first device type throttled by heat near the end."""
    rounds = len(active)
    t = np.arange(rounds)
    scale = np.ones((rounds, 3))
    down, up = link_steps(rounds)
    scale[:, 1] = np.exp(_walk(rounds, rng))
    scale[(t >= down) & (t < up), 1] *= FAST_MBPS / SLOW_MBPS
    start = 3 * rounds // 5
    scale[(t >= start) & (t < start + OVERLOAD_ROUNDS), 2] *= OVERLOAD
    hot = (t >= 3 * rounds // 4) & (t < 9 * rounds // 10)
    scale[hot & (world.type_of[active] == 0), 0] *= THROTTLE
    return scale


def _walk(rounds: int, rng: np.random.Generator) -> Array:
    """A random walk that is reflected at its limits."""
    path = np.cumsum(rng.normal(0.0, WALK, rounds))
    folded = np.abs((path + WALK_LIMIT) % (4 * WALK_LIMIT) - 2 * WALK_LIMIT)
    return folded - WALK_LIMIT
