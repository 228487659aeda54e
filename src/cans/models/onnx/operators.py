"""Whether the runtime knows every operator of a model."""

from __future__ import annotations

import onnx

from cans.errors import ModelError
from cans.models.onnx.graph import subgraphs


def check_operators(proto: onnx.ModelProto) -> None:
    """Refuse what ONNX Runtime has never heard of, before anything is built."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    known = {(each.domain, each.name) for each in get_all_operator_schema()}
    stack = list(proto.graph.node)
    while stack:
        node = stack.pop()
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) not in known and not _old_operator(node.op_type):
            where = f" of domain {domain!r}" if domain else ""
            raise ModelError(
                f"operator {node.op_type!r}{where} is unknown to ONNX Runtime; "
                "export the model with standard operators"
            )
        for body in subgraphs(node):
            stack.extend(body.node)


def _old_operator(name: str) -> bool:
    """Left out of newer runtimes' lists but still in old files (Upsample, Scatter)."""
    return bool(onnx.defs.has(name))
