"""Computing once what never changes, so that shapes are known and nothing small crosses a cut.

With fixed input shapes the shape arithmetic of an exporter (Shape, Gather, Concat, Reshape) is
constant. Folding it and inferring shapes take turns until neither finds more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

from cans.models.onnx import shapes
from cans.models.onnx.cleaning import take_known_branches
from cans.models.onnx.graph import RANDOM, reads, subgraphs
from cans.models.onnx.tensors import ONNX_TYPES, Tensor
from cans.models.onnx.trial import Traced
from cans.models.run.slicing import wrap

_SMALL = 1 << 16  # elements; bigger constants (a transposed weight) stay as they are
_KEPT = RANDOM | {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
_ROUNDS = 200


def fold(proto: onnx.ModelProto, traced: Traced) -> dict[str, Tensor]:
    """Fold in place; returns every tensor whose shape is known in the end. Where a run of the model
    contradicts what is inferred, the run is right, and nothing is folded by that shape."""
    for _ in range(_ROUNDS):
        inferred = shapes.infer(proto)
        tensors = {name: each for name, each in inferred.items() if _agrees(each, traced)}
        values = _known_shapes(proto.graph, tensors)
        values.update(_evaluate(proto, tensors, values))
        changed = _replace(proto.graph, values)
        if not take_known_branches(proto.graph) and not changed:
            break
    for name, shape in traced.shapes.items():
        dtype = traced.dtypes.get(name)
        if dtype in ONNX_TYPES:
            tensors[name] = Tensor(name, shape, str(dtype))
    return tensors


def _agrees(tensor: Tensor, traced: Traced) -> bool:
    seen = traced.shapes.get(tensor.name, tensor.shape)
    return seen == tensor.shape and tensor.name not in traced.varying


def _known_shapes(graph: onnx.GraphProto, tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for node in graph.node:
        if node.op_type in ("Shape", "Size") and node.input and node.input[0] in tensors:
            dims = tensors[node.input[0]].shape
            if node.op_type == "Size":
                found[node.output[0]] = np.array(tensors[node.input[0]].elements, np.int64)
            else:
                bounds = {each.name: each.i for each in node.attribute}
                part = dims[bounds.get("start", 0) : bounds.get("end", len(dims))]
                found[node.output[0]] = np.array(part, np.int64)
    return found


def _evaluate(
    proto: onnx.ModelProto, tensors: Mapping[str, Tensor], values: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Values of the nodes that read only small constants."""
    small = {
        each.name
        for each in proto.graph.initializer
        if each.data_location != onnx.TensorProto.EXTERNAL and _elements(each) <= _SMALL
    }
    known = small | set(values)
    nodes: list[NodeProto] = []
    for node in proto.graph.node:
        foldable = node.op_type not in _KEPT and not subgraphs(node) and node.output[0] not in known
        if foldable and all(name in known for name in reads(node)):
            if any(_too_big(name, tensors) for name in node.output):
                continue
            nodes.append(node)
            known.update(name for name in node.output if name)
    if not nodes:
        return {}
    needed = {name for node in nodes for name in reads(node)}
    initializers = [each for each in proto.graph.initializer if each.name in needed]
    initializers += [numpy_helper.from_array(values[n], n) for n in sorted(needed & set(values))]
    try:
        return _run(proto, nodes, initializers)
    except Exception:  # one node the runtime cannot do alone must not spoil the others
        return _run_one_by_one(proto, nodes, initializers)


def _run(
    proto: onnx.ModelProto, nodes: Iterable[NodeProto], initializers: list[onnx.TensorProto]
) -> dict[str, NDArray[Any]]:
    chosen = list(nodes)
    names = [name for node in chosen for name in node.output if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    graph = helper.make_graph(chosen, "constants", [], outputs, initializers)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        wrap(graph, proto).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = session.run(names, {})
    return {
        name: value
        for name, value in zip(names, found, strict=True)
        if isinstance(value, np.ndarray) and value.dtype != object and value.size <= _SMALL
    }


def _run_one_by_one(
    proto: onnx.ModelProto, nodes: list[NodeProto], initializers: list[onnx.TensorProto]
) -> dict[str, NDArray[Any]]:
    ready = {each.name: each for each in initializers}
    found: dict[str, NDArray[Any]] = {}
    for node in nodes:
        if not all(name in ready for name in reads(node)):
            continue
        try:
            values = _run(proto, [node], [ready[name] for name in reads(node)])
        except Exception:
            continue
        found.update(values)
        ready.update({n: numpy_helper.from_array(v, n) for n, v in values.items()})
    return found


def _replace(graph: onnx.GraphProto, values: Mapping[str, NDArray[Any]]) -> bool:
    """Put values in the place of the nodes that make them."""
    outputs = {each.name for each in graph.output}
    kept: list[NodeProto] = []
    done: set[str] = set()
    for node in graph.node:
        names = [name for name in node.output if name]
        # An output of the model keeps its node: a model must compute its outputs.
        if names and all(name in values and name not in outputs for name in names):
            done.update(names)
        else:
            kept.append(NodeProto.FromString(node.SerializeToString()))
    if not done:
        return False
    graph.initializer.extend(numpy_helper.from_array(values[n], n) for n in sorted(done))
    del graph.node[:]
    graph.node.extend(kept)
    return True


def _elements(tensor: onnx.TensorProto) -> int:
    return int(np.prod(tensor.dims, dtype=np.int64))


def _too_big(name: str, tensors: Mapping[str, Tensor]) -> bool:
    return name in tensors and tensors[name].elements > _SMALL
