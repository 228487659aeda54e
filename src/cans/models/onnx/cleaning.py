"""One form for all files: functions inlined, constants as initializers, no `Identity` left."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, inliner, numpy_helper

from cans.errors import ModelError
from cans.models.onnx.graph import reads, subgraphs

MINIMUM_IR = 8
_SPARSE_LIMIT = 1 << 31  # bytes a sparse weight may become when written out


def clean(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same model in the one form the rest of this package reads."""
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    for sparse in proto.graph.sparse_initializer:
        proto.graph.initializer.append(_dense(sparse))
    del proto.graph.sparse_initializer[:]
    _constants_to_initializers(proto.graph)
    _drop_initializer_inputs(proto.graph)
    _sort_nodes(proto.graph)
    _forward_identities(proto.graph)
    _drop_repeated_node_names(proto.graph)
    # Before IR 4 an initializer had to be an input too, and inference ignores it otherwise.
    proto.ir_version = max(proto.ir_version, MINIMUM_IR)
    return proto


def _sort_nodes(graph: onnx.GraphProto) -> None:
    """Makers before readers, else in the order of the file; the runtime does so by itself."""
    maker = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    parents = [{maker[n] for n in reads(node) if n in maker} for node in graph.node]
    if all(max(above, default=-1) < i for i, above in enumerate(parents)):
        return
    children: list[list[int]] = [[] for _ in parents]
    for i, above in enumerate(parents):
        for parent in above:
            children[parent].append(i)
    waiting = [len(above) for above in parents]
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for child in children[index]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, child)
    if len(order) < len(parents):
        raise ModelError("the graph is invalid: its nodes read each other in a circle")
    nodes = [NodeProto.FromString(graph.node[i].SerializeToString()) for i in order]
    del graph.node[:]
    graph.node.extend(nodes)


def _drop_repeated_node_names(graph: onnx.GraphProto) -> None:
    """Names of nodes have no meaning, but ONNX Runtime refuses two of the same."""
    seen: set[str] = set()
    for node in graph.node:
        if node.name in seen:
            node.ClearField("name")
        seen.add(node.name)


def _drop_initializer_inputs(graph: onnx.GraphProto) -> None:
    """Before IR 4 every initializer was listed as an input; none of those is one."""
    fixed = {each.name for each in graph.initializer}
    real = [each for each in graph.input if each.name not in fixed]
    del graph.input[:]
    graph.input.extend(real)


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    kept: list[NodeProto] = []
    for node in graph.node:
        tensor = _constant_value(node) if node.op_type == "Constant" else None
        if tensor is None:
            kept.append(node)
        else:
            graph.initializer.append(tensor)
    if len(kept) < len(graph.node):
        nodes = [NodeProto.FromString(each.SerializeToString()) for each in kept]
        del graph.node[:]
        graph.node.extend(nodes)


def _constant_value(node: NodeProto) -> TensorProto | None:
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor = TensorProto()
            tensor.CopyFrom(attribute.t)
        elif attribute.name == "sparse_value":
            tensor = _dense(attribute.sparse_tensor)
        elif attribute.name in ("value_float", "value_floats", "value_int", "value_ints"):
            value = helper.get_attribute_value(attribute)
            dtype = np.float32 if "float" in attribute.name else np.int64
            tensor = numpy_helper.from_array(np.array(value, dtype))
        else:
            return None
        tensor.name = node.output[0]
        return tensor
    return None


def _dense(sparse: onnx.SparseTensorProto) -> TensorProto:
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dims = tuple(sparse.dims)
    if prod(dims) * values.itemsize > _SPARSE_LIMIT:
        raise ModelError(f"the sparse weight {sparse.values.name!r} is too large to write out")
    dense: NDArray[Any] = np.zeros(dims, values.dtype)
    if indices.ndim == 2:
        dense[tuple(indices.T)] = values
    else:
        dense.reshape(-1)[indices] = values
    return numpy_helper.from_array(dense, sparse.values.name)


def _forward_identities(graph: onnx.GraphProto) -> None:
    """Read through `Identity`: exporters hide shared weights (and so cuts) behind it."""
    outputs = {each.name for each in graph.output}
    renamed: dict[str, str] = {}
    kept: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "Identity" and node.domain in ("", "ai.onnx"):
            source = renamed.get(node.input[0], node.input[0])
            if node.output[0] not in outputs:
                renamed[node.output[0]] = source
                continue
        kept.append(node)
    if not renamed:
        return
    nodes = [NodeProto.FromString(each.SerializeToString()) for each in kept]
    for node in nodes:
        rename_inputs(node, renamed)
    del graph.node[:]
    graph.node.extend(nodes)


def rename_inputs(node: NodeProto, renamed: Mapping[str, str]) -> None:
    """Rename what a node reads, also inside its bodies (which may capture outer names)."""
    for i, name in enumerate(node.input):
        if name in renamed:
            node.input[i] = renamed[name]
    for body in subgraphs(node):
        own = {each.name for each in (*body.input, *body.initializer)}
        own |= {name for inner in body.node for name in inner.output}
        visible = {old: new for old, new in renamed.items() if old not in own}
        for inner in body.node:
            rename_inputs(inner, visible)
        for output in body.output:
            if output.name in visible:
                # A body may not return an outer tensor by another name: pass it on explicitly.
                body.node.append(
                    helper.make_node("Identity", [visible[output.name]], [output.name])
                )


def take_known_branches(graph: onnx.GraphProto) -> bool:
    """Put the branch that is taken in the place of every `If` whose condition is constant; whether
    there was one. Exporters write them around squeezes, and no cut goes through them."""
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
