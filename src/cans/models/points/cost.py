"""The work on one side of a cut, counted. Apart from the graphs: the simulator reads counts from
tables and needs no ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAC_CLASSES = ("conv", "linear", "attention")


@dataclass(frozen=True)
class Half:
    """Work of a front-end or a back-end, by operation class."""

    macs: Mapping[str, int]  # elements, for the classes activation and other
    ops: Mapping[str, int]
    weight_bytes: int
    bytes_moved: int

    @property
    def total_macs(self) -> int:
        return sum(self.macs[each] for each in MAC_CLASSES)

    @property
    def total_ops(self) -> int:
        return sum(self.ops.values())
