"""Opening a model file: its skeleton, where its weights lie, and a digest of all its bytes."""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import onnx
from onnx import TensorProto

from cans.errors import ModelError
from cans.models.onnx.skeleton import SMALL, MalformedError, read_skeleton
from cans.models.onnx.weights import Region, storage_bytes

_LFS_POINTER = b"version https://git-lfs"
_ORT_FORMAT = b"ORTM"  # a flatbuffer's file identifier


class Opened(NamedTuple):
    """A model file and the files beside it that hold its weights."""

    proto: onnx.ModelProto  # without the big weights
    regions: dict[str, Region]  # of those
    digest: str  # of the file and then those beside it, by name
    beside: dict[str, Path]  # by name: a relative path in the model's folder


def open_file(given: Path) -> Opened:
    path = given.resolve()
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[4:8] == _ORT_FORMAT:
                raise ModelError(
                    f"{path} is in ONNX Runtime's own format, which cannot be cut; give the .onnx "
                    "file that it was made from"
                )
            skeleton, spans = read_skeleton(data)
            hasher = hashlib.sha256(data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the file is empty"
        raise ModelError(f"cannot read {path}: {reason}") from None
    except MalformedError:
        raise _not_onnx(path) from None
    try:
        proto = onnx.ModelProto.FromString(skeleton)
    except Exception:  # protobuf has a type of its own for this, without type hints
        raise _not_onnx(path) from None
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise _not_onnx(path)
    regions = {name: Region(path, offset, length) for name, (offset, length) in spans.items()}
    external, beside = _external(proto, given.absolute(), regions)
    for name in beside:
        _hash_file(beside[name], hasher)
    _inline_small(proto, external)
    return Opened(proto, regions | external, hasher.hexdigest(), beside)


def _not_onnx(path: Path) -> ModelError:
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            return ModelError(f"{path} only says where Git LFS keeps the model; git lfs pull")
    return ModelError(f"{path} is not an ONNX model, or it is truncated; export or copy it again")


def _external(
    proto: onnx.ModelProto, path: Path, own: dict[str, Region]
) -> tuple[dict[str, Region], dict[str, Path]]:
    """Regions of the weights outside of the model file; and the files they are in, in order."""
    found: dict[str, Region] = {}
    files: dict[PurePosixPath, Path] = {}
    for tensor in proto.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL or tensor.name in own:
            continue
        entries = {each.key: each.value for each in tensor.external_data}
        location = PurePosixPath(entries.get("location", ""))
        if not location.name or location.is_absolute() or ".." in location.parts:
            raise ModelError(f"weight {tensor.name!r} points outside the model's folder: refused")
        file = (path.parent / location).resolve()  # it may be a link into a download cache
        try:
            size = file.stat().st_size
            offset = int(entries.get("offset", 0))
            length = int(entries.get("length", 0)) or storage_bytes(tensor)
        except OSError:
            raise ModelError(
                f"the weights file {location} is missing; keep it beside {path.name}"
            ) from None
        except ValueError:
            raise _not_onnx(path) from None
        if offset < 0 or length < 0 or offset + length > size:
            raise ModelError(f"the weights file {location} is truncated; copy it again")
        found[tensor.name] = Region(file, offset, length)
        files[location] = file
    return found, {str(location): files[location] for location in sorted(files)}


def _hash_file(path: Path, hasher: hashlib._Hash) -> None:
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            hasher.update(chunk)


def _inline_small(proto: onnx.ModelProto, external: dict[str, Region]) -> None:
    """Small external tensors come into the graph, where shape inference can read them."""
    for tensor in proto.graph.initializer:
        region = external.get(tensor.name)
        if region is None or region.length > SMALL:
            continue
        with region.path.open("rb") as file:
            file.seek(region.offset)
            tensor.raw_data = file.read(region.length)
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        del external[tensor.name]
