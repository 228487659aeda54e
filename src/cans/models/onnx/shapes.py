"""Shapes of every tensor: inferred, and where inference gives up, taken from a traced run."""

from __future__ import annotations

import onnx
from onnx import shape_inference

from cans.models.onnx.tensors import Tensor, from_initializer, from_value_info


def infer(proto: onnx.ModelProto) -> dict[str, Tensor]:
    """What ONNX shape inference knows, bodies of control flow included."""
    inferred = shape_inference.infer_shapes(proto, data_prop=True)
    found: dict[str, Tensor] = {}
    _collect(inferred.graph, found)
    return found


def _collect(graph: onnx.GraphProto, found: dict[str, Tensor]) -> None:
    for initializer in graph.initializer:
        tensor = from_initializer(initializer)
        if tensor is not None:
            found.setdefault(tensor.name, tensor)
    for info in (*graph.input, *graph.value_info, *graph.output):
        tensor = from_value_info(info)
        if tensor is not None:
            found.setdefault(tensor.name, tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _collect(attribute.g, found)
