"""`If` with a condition that never changes: the branch taken replaces it."""

from __future__ import annotations

import onnx
from onnx import NodeProto, helper, numpy_helper

from cans.models.onnx.cleaning import rename_inputs


def take_known_branches(graph: onnx.GraphProto) -> bool:
    """Exporters write such conditionals around squeezes; they would hide every cut behind them."""
    known = {each.name: each for each in graph.initializer}
    nodes: list[NodeProto] = []
    taken = 0
    for node in graph.node:
        condition = known.get(node.input[0]) if node.op_type == "If" and node.input else None
        if condition is None or condition.data_location == onnx.TensorProto.EXTERNAL:
            nodes.append(NodeProto.FromString(node.SerializeToString()))
            continue
        wanted = "then_branch" if numpy_helper.to_array(condition).item() else "else_branch"
        body = next(each.g for each in node.attribute if each.name == wanted)
        nodes.extend(_opened(node, body, graph, f"{node.output[0]}/{wanted}"))
        taken += 1
    if taken:
        del graph.node[:]
        graph.node.extend(nodes)
    return taken > 0


def _opened(
    node: NodeProto, body: onnx.GraphProto, graph: onnx.GraphProto, prefix: str
) -> list[NodeProto]:
    """The nodes of a body, renamed so that they clash with nothing outside."""
    renamed = {name: f"{prefix}/{name}" for inner in body.node for name in inner.output if name}
    renamed |= {each.name: f"{prefix}/{each.name}" for each in body.initializer}
    for initializer in body.initializer:
        copy = graph.initializer.add()
        copy.CopyFrom(initializer)
        copy.name = renamed[initializer.name]
    nodes = []
    for inner in body.node:
        copied = NodeProto.FromString(inner.SerializeToString())
        rename_inputs(copied, renamed)
        for i, name in enumerate(copied.output):
            copied.output[i] = renamed.get(name, name)
        nodes.append(copied)
    for outer, made in zip(node.output, body.output, strict=True):
        nodes.append(helper.make_node("Identity", [renamed.get(made.name, made.name)], [outer]))
    return nodes
