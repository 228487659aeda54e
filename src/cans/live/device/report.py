"""What a device can say about an inference: what it chose, why, and how long everything took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from cans.learning import Choice, PartitionTable
from cans.learning.arrays import Array

Why = Callable[[], str]
"""Says why something was chosen; to be asked before more is learned, and not while anyone waits."""


@dataclass(frozen=True)
class Report:
    """One inference, explained."""

    number: int  # how many this device had answered, with this one
    point: int
    point_name: str
    codec: str
    why: str
    answered_by: str  # the server, or "device"
    predicted_ms: float  # nan: the policy does not predict
    width_ms: float
    front_ms: float
    link_ms: float  # encoding, both ways of the wire, decoding; nan: did not take place
    server_ms: float  # compute and queue; nan: did not take place
    queue_ms: float
    total_ms: float
    bytes_up: int
    learned: bool  # whether the latencies were typical enough to learn from
    fallback: str  # why the server did not answer; empty: it did, or was not asked
    predictions: tuple[Array, Array] | None = None  # mean and width of every choice
    measured: Array | None = None  # last measured total of every choice; nan: never taken
    table: PartitionTable | None = None

    def document(self, choices: bool = True) -> dict[str, Any]:
        """As JSON; with what was expected of every other choice."""
        found = {name: _plain(getattr(self, name)) for name in _FIELDS}
        if choices and self.table is not None and self.predictions is not None:
            mean, width = self.predictions
            found["choices"] = [
                {
                    "point": self.table.point_of[row],
                    "point_name": self.table.points[self.table.point_of[row]],
                    "codec": self.table.codec_of[row],
                    "predicted_ms": _plain(float(mean[row])),
                    "width_ms": _plain(float(width[row])),
                    "measured_ms": None if self.measured is None
                    else _plain(float(self.measured[row])),
                }
                for row in range(self.table.choices)
            ]  # fmt: skip
        return found

    def __str__(self) -> str:
        parts = [f"{name} {value:.1f} ms" for name, value in
                 (("front", self.front_ms), ("link", self.link_ms), ("server", self.server_ms))
                 if isfinite(value)]  # fmt: skip
        where = f"point {self.point} ({self.point_name}), {self.codec}"
        return f"{where}: {self.total_ms:.1f} ms = {' + '.join(parts)}; {self.why}"


def reason(choice: Choice, mean: Array, table: PartitionTable) -> str:
    """Why the learner chose what it chose."""
    if not isfinite(choice.predicted_ms):
        return "the policy always chooses so"
    lowest = int(np.argmin(mean))
    expected = f"expected {choice.predicted_ms:.1f} ms, width {choice.width_ms:.1f} ms"
    if lowest == choice.row or mean[lowest] >= choice.predicted_ms:
        return f"lowest expected latency ({expected})"
    best = f"{table.points[table.point_of[lowest]]} ({table.codec_of[lowest]})"
    return f"worth finding out ({expected}); expected lowest: {best}, {mean[lowest]:.1f} ms"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


_FIELDS = (
    *("number", "point", "point_name", "codec", "why", "answered_by", "predicted_ms", "width_ms"),
    *("front_ms", "link_ms", "server_ms", "queue_ms", "total_ms", "bytes_up", "learned"),
    "fallback",
)
