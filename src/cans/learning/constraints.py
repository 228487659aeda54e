"""What a user forbids, as filters on choices: privacy, size, loss of accuracy, lateness.

A filter never leaves a device without a choice: the local one breaks none of the rules but the
deadline, and if every choice is too late the least late one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cans.errors import InputError
from cans.learning.arithmetic.arrays import Array, BoolArray
from cans.learning.table import PartitionTable


@dataclass(frozen=True)
class Constraints:
    """Which choices may be taken."""

    min_local_depth: int = 0  # points before this one would show the server too much
    max_bytes: int | None = None  # no choice may send more
    allow_codec: frozenset[str] | None = None  # only these: leave out what costs too much accuracy
    avoid_after_ms: float | None = None  # choices that are expected to be later are not taken
    local_until: str | None = None  # as min_local_depth, by the name of a point or crossing tensor

    def __post_init__(self) -> None:
        if self.min_local_depth < 0:
            raise InputError("min_local_depth must not be negative")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise InputError("max_bytes must not be negative")
        if self.avoid_after_ms is not None and not self.avoid_after_ms > 0:
            raise InputError("avoid_after_ms must be positive")

    def allowed(self, table: PartitionTable, expected_ms: Array | None = None) -> BoolArray:
        """Which choices of a table may be taken, given what they are expected to take.

        >>> table = PartitionTable("toy", ["input", "cut", "end"], front=[[0], [1], [4]],
        ...                        link=[[9], [2], [0]], server=[[4], [3], [0]],
        ...                        bytes_of=[900, 200, 0])
        >>> Constraints(min_local_depth=1).allowed(table).tolist()
        [False, True, True]
        >>> Constraints(max_bytes=100).allowed(table).tolist()
        [False, False, True]
        """
        allowed = np.asarray(table.point_of) >= self.min_local_depth
        if self.max_bytes is not None:
            if not table.bytes_of:
                raise InputError("max_bytes needs a table that knows the size of its choices")
            allowed &= np.asarray(table.bytes_of) <= self.max_bytes
        if self.allow_codec is not None:
            allowed &= np.array([codec in self.allow_codec for codec in table.codec_of])
        allowed[table.local] = True
        if self.avoid_after_ms is not None and expected_ms is not None:
            in_time = allowed & (expected_ms <= self.avoid_after_ms)
            if not in_time.any():
                in_time[np.where(allowed, expected_ms, np.inf).argmin()] = True
            allowed = in_time
        return np.asarray(allowed)
