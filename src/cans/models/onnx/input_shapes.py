"""The user's dimensions for inputs that a file leaves open."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from cans.errors import ModelError


def fix_shapes(graph: onnx.GraphProto, given: Mapping[str, tuple[int, ...]]) -> None:
    """Put the user's dimensions into the inputs; complain about what is still open."""
    names = [each.name for each in graph.input]
    still_open: list[onnx.ValueInfoProto] = []
    for name in given:
        if name not in names:
            raise ModelError(f"--shape names {name!r}, but the inputs are: {', '.join(names)}")
    for info in graph.input:
        if not info.type.HasField("tensor_type"):
            raise ModelError(f"input {info.name!r} is no tensor; such models cannot be cut")
        shape = info.type.tensor_type.shape
        dims = given.get(info.name)
        if dims is not None:
            _check_fits(info.name, shape, dims, info.type.tensor_type.HasField("shape"))
            del shape.dim[:]
            for size in dims:
                shape.dim.add().dim_value = size
        elif not info.type.tensor_type.HasField("shape") or any(_open(d) for d in shape.dim):
            still_open.append(info)
    if still_open:
        raise ModelError(_open_message(still_open))
    # Written for the open dimensions, they would contradict what is inferred now.
    if given:
        for output in graph.output:
            output.type.tensor_type.ClearField("shape")
        del graph.value_info[:]


def _open(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return not dim.HasField("dim_value") or dim.dim_value <= 0


def _check_fits(
    name: str, shape: onnx.TensorShapeProto, dims: tuple[int, ...], has_shape: bool
) -> None:
    fits = not has_shape or (
        len(shape.dim) == len(dims)
        and all(
            _open(dim) or dim.dim_value == size for dim, size in zip(shape.dim, dims, strict=True)
        )
    )
    if not fits:
        raise ModelError(
            f"--shape {name}={'x'.join(map(str, dims))} does not fit: the model says "
            f"{_spelled(shape)}"
        )


def _spelled(shape: onnx.TensorShapeProto) -> str:
    return ", ".join(str(d.dim_value) if not _open(d) else d.dim_param or "?" for d in shape.dim)


def _open_message(inputs: list[onnx.ValueInfoProto]) -> str:
    """One line for all of them, with an option to copy."""
    found = ", ".join(f"{each.name!r} ({_known(each)})" for each in inputs)
    options = " ".join(f"--shape {each.name}={_example(each)}" for each in inputs)
    return f"open dimensions in the input {found}; fix them, e.g. {options}"


def _known(info: onnx.ValueInfoProto) -> str:
    kind = info.type.tensor_type
    return _spelled(kind.shape) if kind.HasField("shape") else "no shape at all"


def _example(info: onnx.ValueInfoProto) -> str:
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return "1x3x224x224"
    usual = {4: (1, 3, 224, 224), 3: (1, 3, 224), 2: (1, 128)}.get(len(kind.shape.dim), ())
    return "x".join(
        str(d.dim_value if not _open(d) else usual[i] if i < len(usual) else 1)
        for i, d in enumerate(kind.shape.dim)
    )
