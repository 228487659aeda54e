"""A model and its points as one JSON document, the format of `cans inspect --json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.cost import Half
from cans.models.points.points import Point


def describe(model: Model, points: Sequence[Point]) -> dict[str, Any]:
    return {
        "model": model.name,
        "digest": model.digest,
        "inputs": [_tensor(each) for each in model.inputs],
        "outputs": [_output(model, name) for name in model.outputs],
        "total_macs": points[-1].front.total_macs,
        "points": [_point(each) for each in points],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "index": point.index,
        "name": point.name,
        "tensors": [_tensor(each) for each in point.tensors],
        "bytes": point.bytes,
        "front": _half(point.front),
        "back": _half(point.back),
    }


def _half(half: Half) -> dict[str, Any]:
    return {
        "macs": dict(half.macs),
        "ops": dict(half.ops),
        "weight_bytes": half.weight_bytes,
        "bytes_moved": half.bytes_moved,
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype}


def _output(model: Model, name: str) -> dict[str, Any]:
    known = model.tensors.get(name)
    return _tensor(known) if known else {"name": name, "shape": None, "dtype": None}
