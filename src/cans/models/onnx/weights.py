"""Where big weights live: in regions of files, so that every cut of a model shares one copy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from onnx import TensorProto, helper

from cans.errors import ModelError

_BITS: dict[int, int] = {TensorProto.INT4: 4, TensorProto.UINT4: 4}


def storage_bytes(proto: TensorProto) -> int:
    """Bytes of a tensor in raw form."""
    if proto.data_type == TensorProto.STRING:
        return sum(len(each) for each in proto.string_data)
    bits = _BITS.get(proto.data_type)
    if bits is None:
        bits = 8 * int(helper.tensor_dtype_to_np_dtype(proto.data_type).itemsize)
    return (int(prod(proto.dims)) * bits + 7) // 8


@dataclass(frozen=True)
class Region:
    """Bytes of one weight inside a file."""

    path: Path
    offset: int
    length: int


class Weights:
    """Big weights by name. Small ones stay in the graph, where shape inference can read them."""

    def __init__(self, regions: Mapping[str, Region]) -> None:
        self._found = regions

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def region(self, name: str) -> Region:
        return self._found[name]

    def all(self) -> Iterable[Region]:
        """Every region there is."""
        return self._found.values()

    def checked(self, proto: TensorProto) -> Region:
        """The region of a weight; it must be as long as its shape says."""
        region = self.region(proto.name)
        if region.length != storage_bytes(proto):
            raise ModelError(
                f"weight {proto.name!r} should be {storage_bytes(proto)} bytes, "
                f"its file holds {region.length}; export the model again"
            )
        return region

    def folder(self, names: Iterable[str]) -> Path | None:
        """A folder that contains the files of all these weights; None when there are none."""
        parents = {self.region(name).path.parent for name in names}
        return Path(os.path.commonpath(parents)) if parents else None


def refer_to_files(initializers: Iterable[TensorProto], weights: Weights) -> Path | None:
    """Point the big weights among these at their files; returns the folder that names in the
    model are relative to, None when all weights are small."""
    wanted = [each for each in initializers if each.name in weights]
    folder = weights.folder(each.name for each in wanted)
    if folder is not None:
        for tensor in wanted:
            _refer(tensor, weights, folder)
    return folder


def _refer(tensor: TensorProto, weights: Weights, folder: Path) -> None:
    region = weights.checked(tensor)
    tensor.ClearField("external_data")
    tensor.data_location = TensorProto.EXTERNAL
    location = region.path.relative_to(folder).as_posix()
    for key, value in (
        ("location", location),
        ("offset", region.offset),
        ("length", region.length),
    ):
        tensor.external_data.add(key=key, value=str(value))
