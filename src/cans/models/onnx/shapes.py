"""Shapes of every tensor: of inputs as the user fixes them, of the others by inference."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper, shape_inference

from cans.errors import ModelError
from cans.models.onnx.graph import captured, subgraphs
from cans.models.onnx.tensors import ONNX_TYPES, Tensor, from_initializer, from_value_info


def infer(proto: onnx.ModelProto) -> dict[str, Tensor]:
    """What ONNX shape inference knows, bodies of control flow included."""
    inferred = shape_inference.infer_shapes(proto, data_prop=True)
    found: dict[str, Tensor] = {}
    _collect(inferred.graph, found)
    for node in inferred.graph.node:
        if node.op_type in ("Loop", "Scan"):
            _infer_body(node, proto, found)
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
        for body in subgraphs(node):
            _collect(body, found)


def _infer_body(node: onnx.NodeProto, proto: onnx.ModelProto, found: dict[str, Tensor]) -> None:
    """A body whose inputs are declared open: what it carries is shaped like what it begins with,
    and what it scans is a slice. Work in the body can then be counted."""
    (body,) = subgraphs(node)
    graph = onnx.GraphProto()
    graph.CopyFrom(body)
    given = list(node.input)
    if node.op_type == "Loop":
        given = ["", "", *given[2:]]
        scanned = 0
    else:
        scanned = next((e.i for e in node.attribute if e.name == "num_scan_inputs"), 0)
    for i, (info, name) in enumerate(zip(graph.input, given, strict=False)):
        outer = found.get(name)
        if outer is not None:
            is_slice = i >= len(given) - scanned
            shape = outer.shape[1:] if is_slice else outer.shape
            info.CopyFrom(helper.make_tensor_value_info(info.name, ONNX_TYPES[outer.dtype], shape))
    for name in sorted(captured(body)):
        if name in found:
            graph.input.append(found[name].value_info())
    model = onnx.ModelProto(ir_version=proto.ir_version, graph=graph)
    model.opset_import.extend(proto.opset_import)
    try:
        _collect(shape_inference.infer_shapes(model, data_prop=True).graph, found)
    except Exception:  # the body contradicts the guess: its shapes stay open
        return


def fix_shapes(
    graph: onnx.GraphProto, given: Mapping[str, tuple[int, ...]]
) -> list[onnx.ValueInfoProto]:
    """Put the user's dimensions into the inputs; returns those that are still open."""
    names = [each.name for each in graph.input]
    for name in given:
        if name not in names:
            raise ModelError(f"--shape names {name!r}, but the inputs are: {', '.join(names)}")
    still_open: list[onnx.ValueInfoProto] = []
    for info in graph.input:
        kind = info.type.tensor_type
        dims = given.get(info.name)
        if dims is not None:
            if not shape_fits(info, dims):
                raise ModelError(
                    f"--shape {info.name}={'x'.join(map(str, dims))} does not fit: the model says "
                    f"{spelled(info)}"
                )
            del kind.shape.dim[:]
            kind.shape.SetInParent()  # no dimension at all is a shape too
            for size in dims:
                kind.shape.dim.add().dim_value = size
        elif not kind.HasField("shape") or any(is_open(each) for each in kind.shape.dim):
            still_open.append(info)
    # Written for the open dimensions, they would contradict what is inferred now.
    if given:
        for output in graph.output:
            output.type.tensor_type.ClearField("shape")
        del graph.value_info[:]
    return still_open


def is_open(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return not dim.HasField("dim_value") or dim.dim_value <= 0


def spelled(info: onnx.ValueInfoProto) -> str:
    """The dimensions of an input, the open ones by their names."""
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return "no shape at all"
    return ", ".join(d.dim_param or "?" if is_open(d) else str(d.dim_value) for d in kind.shape.dim)


def shape_fits(info: onnx.ValueInfoProto, shape: tuple[int, ...]) -> bool:
    """Whether an input, as far as it is fixed, may have this shape."""
    kind = info.type.tensor_type
    dims = kind.shape.dim
    return not kind.HasField("shape") or (
        len(dims) == len(shape)
        and all(
            is_open(dim) or dim.dim_value == size for dim, size in zip(dims, shape, strict=True)
        )
    )
