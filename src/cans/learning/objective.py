"""What a device aims at: the quickest answer, or the most answers. A filter on choices.

A stream keeps front-end, link and server busy at the same time, each with another request: how many
answers come is up to the slowest of the three alone, the bottleneck of a choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cans.errors import InputError, unknown_name
from cans.learning.arithmetic.arrays import Array, BoolArray

_ALIKE = 1.02  # bottlenecks within this factor are as good: latency decides


class Goal(StrEnum):
    LATENCY = "latency"
    THROUGHPUT = "throughput"


@dataclass(frozen=True)
class Objective:
    """Which of the choices that are allowed serve the purpose."""

    goal: Goal = Goal.LATENCY
    fps: float | None = None  # the latency-best choice that keeps up with so many a second

    @classmethod
    def parse(cls, goal: str, fps: float | None) -> Objective:
        if goal not in set(Goal):
            raise unknown_name("objective", goal, list(Goal))
        if fps is not None and not 0 < fps < float("inf"):
            raise InputError("--fps must be positive")
        return cls(Goal(goal), fps)

    @property
    def is_latency(self) -> bool:
        return self.goal is Goal.LATENCY and self.fps is None

    def serving(self, bottleneck: Array, allowed: BoolArray) -> BoolArray:
        """Of the allowed choices those to choose among, by the milliseconds of their bottlenecks.

        >>> three, all_of_them = np.array([9.0, 5.0, 7.0]), np.ones(3, bool)
        >>> Objective(Goal.THROUGHPUT).serving(three, all_of_them).tolist()
        [False, True, False]
        >>> Objective(fps=125).serving(three, all_of_them).tolist()
        [False, True, True]
        >>> Objective(fps=1000).serving(three, all_of_them).tolist()  # none: the nearest
        [False, True, False]
        """
        if self.fps is not None and self.goal is Goal.LATENCY:
            keeps_up = allowed & (bottleneck <= 1e3 / self.fps)
            if keeps_up.any():
                return np.asarray(keeps_up)
        least = float(np.where(allowed, bottleneck, np.inf).min())
        return np.asarray(allowed & (bottleneck <= _ALIKE * least + 1e-9))
