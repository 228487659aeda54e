"""Where weights live: in files that are mapped, not read, so that every cut shares one copy."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from cans.errors import ModelError


@dataclass(frozen=True)
class Region:
    """Bytes of one weight inside a file."""

    path: Path
    offset: int
    length: int


@dataclass
class Weights:
    """Big weights by name. Small ones stay in the graph, where shape inference can read them."""

    regions: Mapping[str, Region]
    _maps: dict[Path, mmap.mmap] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __contains__(self, name: object) -> bool:
        return name in self.regions

    @staticmethod
    def nbytes(proto: TensorProto) -> int:
        return storage_bytes(proto)

    def array(self, proto: TensorProto) -> NDArray[Any]:
        """A read-only view of the weight; its pages are shared with every other reader."""
        region = self.regions[proto.name]
        dtype = helper.tensor_dtype_to_np_dtype(proto.data_type)
        elements = prod(proto.dims)
        if region.length != storage_bytes(proto):
            raise ModelError(
                f"weight {proto.name!r} should be {storage_bytes(proto)} bytes, "
                f"its file holds {region.length}; export the model again"
            )
        mapped = self._map(region.path)
        if region.offset < 0 or region.offset + region.length > len(mapped):
            raise ModelError(
                f"weight {proto.name!r} lies outside {region.path.name}; the file is truncated"
            )
        flat = np.frombuffer(mapped, dtype, count=elements, offset=region.offset)
        return flat.reshape(tuple(proto.dims))

    def release(self) -> None:
        """Give the pages read so far back to the system; they are read again if needed."""
        with self._lock:
            for each in self._maps.values():
                each.madvise(mmap.MADV_DONTNEED)

    def _map(self, path: Path) -> mmap.mmap:
        with self._lock:
            if path not in self._maps:
                try:
                    with path.open("rb") as file:
                        self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                except (OSError, ValueError) as error:
                    raise ModelError(f"cannot read the weights in {path.name}: {error}") from None
            return self._maps[path]


_BITS: dict[int, int] = {TensorProto.INT4: 4, TensorProto.UINT4: 4}


def storage_bytes(proto: TensorProto) -> int:
    """Bytes of a tensor in raw form."""
    bits = _BITS.get(proto.data_type)
    if bits is None:
        bits = 8 * int(helper.tensor_dtype_to_np_dtype(proto.data_type).itemsize)
    return (int(prod(proto.dims)) * bits + 7) // 8
