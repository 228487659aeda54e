"""What is known of a tensor before it exists: name, shape, type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper

# Types that NumPy and ONNX Runtime both carry; only these may cross a cut.
CROSSING_TYPES: Mapping[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.DOUBLE: "float64",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
}
ONNX_TYPES = {name: number for number, name in CROSSING_TYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """A tensor of known type, and shape: the largest there is where that varies."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    lowest: tuple[int, ...] = ()  # the smallest each dimension may be; empty: the shape is fixed

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * np.dtype(self.dtype).itemsize

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape is one of these."""
        if not self.lowest:
            return shape == self.shape
        return len(shape) == len(self.shape) and all(
            low <= size <= high
            for low, size, high in zip(self.lowest, shape, self.shape, strict=True)
        )

    @property
    def dims(self) -> str:
        """As in `--shape`.

        >>> Tensor("x", (1, 640), "float32", (1, 32)).dims
        '1x32..640'
        """
        return "x".join(self._dims())

    @property
    def spelled(self) -> str:
        return f"{self.dtype}[{', '.join(self._dims())}]"

    def _dims(self) -> list[str]:
        lowest = self.lowest or self.shape
        return [f"{a}..{b}" if a < b else str(b) for a, b in zip(lowest, self.shape, strict=True)]

    def value_info(self) -> onnx.ValueInfoProto:
        lowest = self.lowest or self.shape
        dims = [b if a == b else None for a, b in zip(lowest, self.shape, strict=True)]
        return helper.make_tensor_value_info(self.name, ONNX_TYPES[self.dtype], dims)


def from_value_info(info: onnx.ValueInfoProto) -> Tensor | None:
    """The tensor, or None while a dimension or the type is unknown."""
    kind = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    dims = kind.shape.dim
    if kind.elem_type not in CROSSING_TYPES or any(not d.HasField("dim_value") for d in dims):
        return None
    if any(d.dim_value < 0 for d in dims):
        return None
    return Tensor(info.name, tuple(d.dim_value for d in dims), CROSSING_TYPES[kind.elem_type])


def from_initializer(proto: TensorProto) -> Tensor | None:
    if proto.data_type not in CROSSING_TYPES:
        return None
    return Tensor(proto.name, tuple(proto.dims), CROSSING_TYPES[proto.data_type])
