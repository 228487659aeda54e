"""Is this graph a valid model that the runtime knows? Checked before anything is built from it."""

from __future__ import annotations

import onnx

from cans.errors import ModelError
from cans.models.onnx.graph import reads, subgraphs
from cans.models.onnx.tensors import CROSSING_TYPES


def check_model(proto: onnx.ModelProto) -> None:
    """`ModelError` with the first reason why this is no model that can be cut and run."""
    _check_opset(proto)
    _check_operators(proto)
    _check_inputs(proto.graph)
    _check_names(proto.graph)


def _check_opset(proto: onnx.ModelProto) -> None:
    newest = onnx.defs.onnx_opset_version()
    for each in proto.opset_import:
        if each.domain in ("", "ai.onnx") and not 1 <= each.version <= newest:
            raise ModelError(
                f"the model is of opset {each.version}, the newest known here is {newest}; "
                "export it with an older opset, or update onnx and onnxruntime"
            )


def _check_operators(proto: onnx.ModelProto) -> None:
    """Refuse what ONNX Runtime has never heard of."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    known = {(each.domain, each.name) for each in get_all_operator_schema()}
    stack = list(proto.graph.node)
    while stack:
        node = stack.pop()
        domain = "" if node.domain == "ai.onnx" else node.domain
        # The second question: left out of newer runtimes' lists, still in old files (Upsample).
        if (domain, node.op_type) not in known and not onnx.defs.has(node.op_type):
            where = f" of domain {domain!r}" if domain else ""
            raise ModelError(
                f"operator {node.op_type!r}{where} is unknown to ONNX Runtime; "
                "export the model with standard operators"
            )
        for body in subgraphs(node):
            stack.extend(body.node)


def _check_inputs(graph: onnx.GraphProto) -> None:
    if not graph.input:
        raise ModelError("the model has no input; there is nothing to send")
    for info in graph.input:
        if not info.type.HasField("tensor_type"):
            raise ModelError(f"input {info.name!r} is no tensor; such models cannot be cut")
        number = info.type.tensor_type.elem_type
        if number not in CROSSING_TYPES:
            names = onnx.TensorProto.DataType
            kind = names.Name(number) if number in names.values() else f"number {number}"
            raise ModelError(f"input {info.name!r} is of type {kind}, which cannot be sent")


def _check_names(graph: onnx.GraphProto) -> None:
    """Everything that is read is made once, before it is read."""
    known = {each.name for each in (*graph.input, *graph.initializer)}
    for node in graph.node:
        label = f"{node.op_type} {node.name!r}" if node.name else node.op_type
        for name in reads(node):
            if name not in known:
                raise ModelError(f"the graph is invalid: {label} reads {name!r}, made nowhere")
        for name in filter(None, node.output):
            if name in known:
                raise ModelError(f"the graph is invalid: {name!r} is made twice")
            known.add(name)
    for each in graph.output:
        if each.name not in known:
            raise ModelError(f"the graph is invalid: nothing makes the output {each.name!r}")
