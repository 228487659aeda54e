"""A model and its points as one JSON document, the format of `cans inspect --json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
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
    found = {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype}
    return {**found, "lowest": list(tensor.lowest)} if tensor.lowest else found


def _output(model: Model, name: str) -> dict[str, Any]:
    known = model.tensors.get(name)
    return _tensor(known) if known else {"name": name, "shape": None, "dtype": None}


def json_text(document: Any) -> str:
    """One JSON document; what JSON cannot say (infinity, not a number) is null."""
    return json.dumps(_sayable(document), allow_nan=False)


def _sayable(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _sayable(each) for key, each in value.items()}
    return [_sayable(each) for each in value] if isinstance(value, list | tuple) else value


def spelled_macs(macs: int) -> str:
    """
    >>> spelled_macs(15_470_264_320), spelled_macs(9_216), spelled_macs(0)
    ('15.470 GMAC', '9.216 kMAC', '0 MAC')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if macs >= size:
            return f"{macs / size:.3f} {unit}MAC"
    return f"{macs} MAC"
