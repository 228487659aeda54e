"""`PartitionTable`: what the learner knows of a model before it has run it anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cans.learning.arithmetic.arrays import Array

SEGMENTS = ("front", "link", "server")
"""The three latencies that make up a round, in the order they happen."""

PROBE_BYTES = (8 << 10, 64 << 10)
"""What exchanges that are timed for their own sake send, smallest first."""


@dataclass(frozen=True, eq=False)
class PartitionTable:
    """One row per choice; three groups of columns, one for each segment of the latency.

    A choice is a partition point together with a codec for what crosses there. The first choice
    sends the raw input (front features all zero), the last one is local (link and server features
    all zero). `front @ theta_front` is the device's time, and so on.

    >>> table = PartitionTable("toy", ["input", "end"], front=[[0], [4]], link=[[2], [0]],
    ...                        server=[[4], [0]])
    >>> table.local, table.columns(("link", "server")).tolist()
    (1, [[1.0, 1.0], [0.0, 0.0]])
    """

    model: str
    points: Sequence[str]
    front: Array
    link: Array
    server: Array
    point_of: Sequence[int] = ()
    codec_of: Sequence[str] = ()
    bytes_of: Sequence[int] = ()  # what each choice sends; empty: not known
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    probe: Array | None = None  # link features of exchanges to time, a row each, smallest first
    digest: str = ""
    version: str = "1"
    scaled: bool = False  # the features are on the scale of another table, and stay as they are

    def __post_init__(self) -> None:
        if self.probe is not None and not self.scaled:
            largest = np.asarray(self.link, dtype=np.float64).max(axis=0)
            probe = np.atleast_2d(self.probe) / np.maximum(largest, 1e-300)
            object.__setattr__(self, "probe", probe)
        for segment in SEGMENTS:
            object.__setattr__(self, segment, _scaled(getattr(self, segment), segment, self.scaled))
        choices = len(self.front)
        if not choices == len(self.link) == len(self.server):
            raise ValueError("front, link and server must have one row per choice")
        if choices < 2:
            raise ValueError("a table needs at least the raw input and the local point")
        fixed = {
            "points": tuple(self.points),
            "point_of": tuple(self.point_of) or tuple(range(len(self.points))),
            "codec_of": tuple(self.codec_of) or ("float32",) * choices,
            "bytes_of": tuple(self.bytes_of),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)
        if not len(self.point_of) == len(self.codec_of) == choices:
            raise ValueError("point_of and codec_of must have one entry per choice")
        if self.bytes_of and len(self.bytes_of) != choices:
            raise ValueError("bytes_of must have one entry per choice")
        if not all(0 <= point < len(self.points) for point in self.point_of):
            raise ValueError("point_of names a point that is not in the table")
        if self.link[self.local].any() or self.server[self.local].any():
            raise ValueError("the last choice must be local: nothing crosses, nothing runs behind")

    @property
    def choices(self) -> int:
        return len(self.front)

    @property
    def local(self) -> int:
        """The choice that runs everything on the device."""
        return self.choices - 1

    def columns(self, segments: Sequence[str]) -> Array:
        """The features (choices, d) that explain the sum of these segments' latencies."""
        return np.hstack([getattr(self, segment) for segment in segments])


def _scaled(columns: Array, segment: str, already: bool) -> Array:
    """Each column divided by its maximum over the choices (PAPER-NOTES: scaled features)."""
    array = np.array(columns, dtype=np.float64, ndmin=2)
    if array.ndim != 2 or not np.isfinite(array).all() or (array < 0).any():
        raise ValueError(f"the {segment} features must be a finite, non-negative table")
    largest = array.max(axis=0, initial=0.0)
    if not already:
        array /= np.where(largest > 0, largest, 1.0)
    array.flags.writeable = False
    return array
