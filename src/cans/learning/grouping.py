"""Which devices learn together when nobody has named their types.

The time that a device takes for the whole model is the feature: devices of one group stay within a
factor of each other, and the pace of `estimating.py` carries what differs inside it. A limit on a
group's span, rather than a distance to its nearest member, keeps neighbours from chaining together.
Groups never shrink and never merge: observations that entered a pool cannot be taken out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import NamedTuple

AUTO = "auto"
"""The type of a device whose type nobody named."""

SPAN = 1.8
"""The slowest device of a group takes at most so many times as long as its fastest one."""

LEAST_MS = 3.0
"""Shorter whole-model times count as this one: below it, what differs is the scheduler."""

KEPT = (0.6, 1.6)
"""A device whose own pace leaves this range has become another machine than its group knows."""


class Span(NamedTuple):
    """The fastest and the slowest whole-model time of a group, milliseconds."""

    low: float
    high: float

    def including(self, ms: float) -> Span:
        return Span(min(self.low, ms), max(self.high, ms))

    @property
    def width(self) -> float:
        """How many times the fastest the slowest takes."""
        return self.high / self.low

    def distance(self, ms: float) -> float:
        """How far a time lies from the middle of the group, as a logarithm."""
        return abs(log(ms) - 0.5 * (log(self.low) + log(self.high)))


class Family(NamedTuple):
    """Among which groups a device is placed: groups of two families never mix."""

    model: str  # digest
    shape: str  # of the input that the whole-model time was measured with
    provider: str  # what executes the model
    label: str = ""  # the type that somebody gave; empty: none

    def name(self, number: int) -> str:
        """What the pool of the family's group `number` is called.

        >>> Family("m", "1,3", "CPUExecutionProvider", "rpi5").name(0)
        'rpi5/auto-1'
        >>> Family("m", "1,3", "CUDAExecutionProvider").name(2)
        'auto-cuda-3'
        """
        provider = self.provider.removesuffix("ExecutionProvider").lower()
        kind = "" if provider in ("", "cpu") else f"{provider}-"
        prefix = f"{self.label}/" if self.label else ""
        return f"{prefix}auto-{kind}{number + 1}"


def counted(whole_ms: float) -> float:
    """The time that grouping goes by."""
    return max(whole_ms, LEAST_MS) if whole_ms < inf else LEAST_MS


def group_of(spans: Sequence[Span], whole_ms: float) -> int:
    """The nearest group that still spans at most `SPAN` with this device in it; `len(spans)`: a new
    one.

    >>> group_of([Span(10.0, 12.0), Span(90.0, 100.0)], 17.0)
    0
    >>> group_of([Span(10.0, 12.0), Span(90.0, 100.0)], 30.0)
    2
    """
    ms = counted(whole_ms)
    fitting = [
        (span.distance(ms), number)
        for number, span in enumerate(spans)
        if span.including(ms).width <= SPAN
    ]
    return min(fitting)[1] if fitting else len(spans)


def placed(spans: Sequence[Span], whole_ms: float) -> tuple[int, tuple[Span, ...]]:
    """The group of a device and the spans with it in them."""
    number, ms = group_of(spans, whole_ms), counted(whole_ms)
    grown = [*spans, Span(ms, ms)] if number == len(spans) else list(spans)
    grown[number] = grown[number].including(ms)
    return number, tuple(grown)


def outgrown(pace: float) -> bool:
    """Whether a device that takes `pace` times as long as its group belongs to another one."""
    return not KEPT[0] <= pace <= KEPT[1]
