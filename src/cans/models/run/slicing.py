"""Cutting a piece out of a model: a small file that names its weights and does not hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from cans.models.onnx.graph import Graph, Node
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.counting import work_of

PRODUCTS = frozenset({"MatMul", "Gemm"})
_MANY_ROWS = 8
_BIG_LAYER = 16 << 20  # bytes


@dataclass(frozen=True)
class Piece:
    """A run of consecutive nodes as a model of its own."""

    proto: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    pack: bool  # keep packed copies of product weights


def cut_out(model: Model, start: int, stop: int) -> Piece:
    """Nodes `start` to `stop` of the schedule: from what is alive before to what is used later."""
    graph = model.graph
    alive = graph.crossings()
    nodes = graph.nodes[start:stop]
    made = {name for node in nodes for name in node.outputs}
    used = {name for node in nodes for name in node.inputs}
    inputs = tuple(name for name in alive[start] if name in used)
    kept = dict.fromkeys([*alive[stop], *graph.outputs])
    outputs = tuple(name for name in kept if name in made)
    return assemble(model, nodes, inputs, outputs)


def assemble(
    model: Model, nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str]
) -> Piece:
    """A model of exactly these nodes and the constants behind them."""
    wanted = [name for node in nodes for name in (*node.constants, *node.remade)]
    wanted += [name for name in outputs if model.graph.is_constant(name)]
    before, leaves = model.graph.constants_behind(wanted)
    graph = helper.make_graph(
        [*before, *(node.proto for node in nodes)],
        "piece",
        [model.tensors[name].value_info() for name in inputs],
        [_output(name, model.tensors.get(name)) for name in outputs],
        [model.graph.initializers[name] for name in sorted(leaves)],
    )
    pack = worth_packing(model, nodes)
    return Piece(wrap(graph, model.proto), tuple(inputs), tuple(outputs), pack)


def worth_packing(model: Model, nodes: Sequence[Node]) -> bool:
    """Should the session keep packed copies of its product weights?

    They speed up products of many rows. A big fully connected layer on one row gains nothing; it
    reads the mapped file just as fast, and the session needs no copy of it.
    """
    few = many = 0
    for node in nodes:
        if node.kind in PRODUCTS:
            size = sum(model.weight_bytes(name) for name in node.constants)
            macs = sum(work_of(node.proto, model.tensors, model.constants).amount)
            if macs >= _MANY_ROWS * size // 4:
                many += size
            else:
                few += size
    return few < max(many, _BIG_LAYER)


def constant_outputs(graph: Graph) -> tuple[str, ...]:
    """Outputs that no input influences."""
    return tuple(name for name in graph.outputs if graph.is_constant(name))


def wrap(graph: onnx.GraphProto, like: onnx.ModelProto) -> onnx.ModelProto:
    """A model around a graph, with the opsets of another."""
    model = onnx.ModelProto(ir_version=like.ir_version, producer_name="cans")
    model.opset_import.extend(like.opset_import)
    model.graph.CopyFrom(graph)
    return model


def _output(name: str, tensor: Tensor | None) -> onnx.ValueInfoProto:
    if tensor is None:  # the runtime infers it
        return onnx.ValueInfoProto(name=name)
    return tensor.value_info()
