"""What goes into a choice, the choice, and what was measured of it: frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cans.learning.arithmetic.arrays import Array, BoolArray
from cans.learning.congestion import Load


class Context(NamedTuple):
    """All that comes from outside when a device chooses: a learner holds no random source."""

    uniform: float = 0.0  # a draw from [0, 1), for policy `random` and for crowds
    normals: Array | None = None  # d standard normals, for `lints`
    key_frame: bool = False  # an important frame: ANS explores less
    allowed: BoolArray | None = None  # choices that may be taken, at least one; None: all
    known: Array | None = None  # today's expected latency of every choice, for `oracle`
    load: Load | None = None  # what the server told last, for a policy that is aware of it
    toll: float = 1.0  # the share of the toll that counts: 0 selfish, 1 / weight of this device


class Choice(NamedTuple):
    """What was chosen and how the learner saw it."""

    row: int  # of the partition table
    point: int
    codec: str
    predicted_ms: float  # expected latency by the present estimate; nan if the policy has none
    width_ms: float  # how much the choice was favoured for being uncertain
    tied: bool = False  # another choice was as good; the lower index won
    wait_ms: float = 0.0  # for a worker of the server, as it was told
    overrun_ms: float = 0.0  # of that, because it waited longer than it was told before
    toll_ms: float = 0.0  # charged for the waiting that the choice causes to others
    looked: bool = False  # made once to see what it takes; the next one may be as the last was


class Latencies(NamedTuple):
    """Measured milliseconds of one round. None: not measured, nothing is learned from it."""

    front: float | None = None
    link: float | None = None
    server: float | None = None

    def of(self, segments: Sequence[str]) -> float | None:
        """The sum over these segments, if all of them were measured."""
        total = 0.0
        for segment in segments:
            value: float | None = getattr(self, segment)
            if value is None:
                return None
            total += value
        return total
