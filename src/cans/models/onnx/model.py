"""A model ready to be cut: scheduled graph, known shapes, weights that are fetched when needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import onnx

from cans.models.onnx.graph import Graph
from cans.models.onnx.tensors import Tensor
from cans.models.onnx.weights import Weights, storage_bytes
from cans.models.points.counting import Work, work_of
from cans.models.points.sizes import Varying


@dataclass(frozen=True)
class Model:
    """One ONNX model with fixed shapes. `digest` identifies file content (weights included)."""

    name: str
    digest: str
    proto: onnx.ModelProto = field(repr=False)  # opsets, IR version; weights are elsewhere
    graph: Graph = field(repr=False)
    tensors: Mapping[str, Tensor] = field(repr=False)
    weights: Weights = field(repr=False)
    declared_points: Mapping[str, str] | None = None  # point name -> tensor, from the file
    named_sizes: Mapping[str, int] = field(default_factory=dict)  # open in the file, fixed here
    varying: Varying | None = None  # how shapes follow from sizes that are not fixed
    source: Path | None = None  # the file, when it is one
    beside: Mapping[str, Path] = field(default_factory=dict)  # files with weights, by location

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors[name] for name in self.graph.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.graph.outputs

    @cached_property
    def constants(self) -> frozenset[str]:
        return frozenset(self.graph.initializers) | frozenset(self.graph.constant_nodes)

    @cached_property
    def node_work(self) -> tuple[Work, ...]:
        small = {n: each for n, each in self.graph.initializers.items() if n not in self.weights}
        return tuple(
            work_of(node.proto, self.tensors, self.constants, small) for node in self.graph.nodes
        )

    def weight_bytes(self, name: str) -> int:
        """Bytes of a constant as it is stored: a quantised weight counts before dequantisation."""
        if name in self.graph.initializers:
            return storage_bytes(self.graph.initializers[name])
        maker = self.graph.constant_nodes[name]
        if maker.op_type != "DequantizeLinear" and name in self.tensors:
            return self.tensors[name].nbytes
        leaves = self.graph.constants_behind([name])[1]
        return sum(storage_bytes(self.graph.initializers[each]) for each in leaves)
