"""The two halves of a cut as ONNX files of their own, proved equal to the whole; for Triton too."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import helper

from cans.errors import InputError, ModelError, RunError
from cans.models.onnx.model import Model
from cans.models.points.points import Point
from cans.models.run.sessions import one_line
from cans.models.run.slicing import Piece, assemble, constant_outputs, cut_out
from cans.models.tools.comparing import error
from cans.models.tools.evidence import Arrays, Evidence

INLINE_BYTES = 1 << 30  # weights beyond this lie beside the file: protobuf ends at 2 GB
_RUNTIME_TYPES = {
    "tensor(float)": (onnx.TensorProto.FLOAT, "TYPE_FP32"),
    "tensor(float16)": (onnx.TensorProto.FLOAT16, "TYPE_FP16"),
    "tensor(double)": (onnx.TensorProto.DOUBLE, "TYPE_FP64"),
    "tensor(int8)": (onnx.TensorProto.INT8, "TYPE_INT8"),
    "tensor(int16)": (onnx.TensorProto.INT16, "TYPE_INT16"),
    "tensor(int32)": (onnx.TensorProto.INT32, "TYPE_INT32"),
    "tensor(int64)": (onnx.TensorProto.INT64, "TYPE_INT64"),
    "tensor(uint8)": (onnx.TensorProto.UINT8, "TYPE_UINT8"),
    "tensor(uint16)": (onnx.TensorProto.UINT16, "TYPE_UINT16"),
    "tensor(uint32)": (onnx.TensorProto.UINT32, "TYPE_UINT32"),
    "tensor(uint64)": (onnx.TensorProto.UINT64, "TYPE_UINT64"),
    "tensor(bool)": (onnx.TensorProto.BOOL, "TYPE_BOOL"),
    "tensor(string)": (onnx.TensorProto.STRING, "TYPE_STRING"),
}


@dataclass(frozen=True)
class WrittenHalf:
    """One half as a file, and the session that runs it."""

    side: str  # front or back
    file: Path
    session: ort.InferenceSession


def point_named(points: Sequence[Point], wanted: str) -> Point:
    """The point of this index or name, if both of its halves have something to do."""
    found = [each for each in points if wanted in (str(each.index), each.name)]
    if not found:
        raise InputError(f"there is no point {wanted!r}; `cans inspect` lists them")
    point = found[0]
    if point.index == 0:
        raise InputError(f"point {wanted!r} is the raw input: there is no front-end to write")
    if point.index == len(points) - 1:
        raise InputError(f"point {wanted!r} is the whole model: there is no back-end to write")
    return point


def write_halves(
    model: Model, point: Point, out: Path, *, triton: bool = False, given: Arrays | None = None
) -> dict[str, Any]:
    """Write both halves into a folder once they are proved equal to the whole; what was written."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder, and {out} is a file")
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", model.name)
    end = len(model.graph.nodes)
    front = cut_out(model, 0, point.depth)
    back = cut_out(model, point.depth, end)
    fixed = constant_outputs(model.graph)
    if fixed:
        nodes = model.graph.nodes[point.depth : end]
        back = assemble(model, nodes, back.inputs, (*back.outputs, *fixed))
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=out) as hidden:
            folder = Path(hidden)
            places = {
                side: f"{name}_{side}/1/model.onnx" if triton else f"{side}.onnx"
                for side in ("front", "back")
            }
            halves = [
                _write(model, piece, side, folder / places[side])
                for side, piece in (("front", front), ("back", back))
            ]
            if triton:
                for half in halves:
                    _write_config(half, f"{name}_{half.side}", folder)
            worst, tolerance = _proof(model, point, halves, given)
            document = _document(model, point, halves, places, worst, tolerance)
            (folder / "split.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
            _move(folder, out)
    except OSError as failure:
        raise InputError(f"cannot write to --out {out}: {failure.strerror}") from None
    return document


def _write(model: Model, piece: Piece, side: str, file: Path) -> WrittenHalf:
    file.parent.mkdir(parents=True, exist_ok=True)
    proto = onnx.ModelProto()
    proto.CopyFrom(piece.proto)
    proto.graph.name = f"{model.name}, {side}-end"
    size = 0
    for tensor in proto.graph.initializer:
        if tensor.name in model.weights:
            region = model.weights.checked(tensor)
            with region.path.open("rb") as source:
                source.seek(region.offset)
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
                tensor.raw_data = source.read(region.length)
            size += region.length
    _save(proto, file, size)
    session = _open(file)
    if _declare_outputs(proto, session):
        _save(proto, file, size)
    return WrittenHalf(side, file, session)


def _save(proto: onnx.ModelProto, file: Path, size: int) -> None:
    beside = size > INLINE_BYTES
    data = f"{file.name}.data"
    (file.parent / data).unlink(missing_ok=True)
    saved = onnx.ModelProto()
    saved.CopyFrom(proto)  # saving moves the weights out of it
    onnx.save(saved, file, save_as_external_data=beside, location=data if beside else None)


def _open(file: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as failure:
        raise ModelError(f"ONNX Runtime cannot run a half: {one_line(failure)}") from None


def _declare_outputs(proto: onnx.ModelProto, session: ort.InferenceSession) -> bool:
    """Give outputs of unknown type the type the runtime found: other tools need it."""
    found = {each.name: each for each in session.get_outputs()}
    changed = False
    for output in proto.graph.output:
        runtime = found[output.name]
        if not output.HasField("type") and runtime.type in _RUNTIME_TYPES:
            kind = _RUNTIME_TYPES[runtime.type][0]
            shape = [each if isinstance(each, int) else None for each in runtime.shape]
            output.CopyFrom(helper.make_tensor_value_info(output.name, kind, shape))
            changed = True
    return changed


def _proof(
    model: Model, point: Point, halves: list[WrittenHalf], given: Arrays | None
) -> tuple[float, float]:
    """(largest error, allowed error) of the files that were written, one after the other."""
    evidence = Evidence.of(model, [point], given=given)
    if evidence.shows_nothing:
        raise RunError(
            f"{model.name}: nothing is shown, {'; '.join(evidence.remarks)}. "
            "Give real inputs with --input FILE.npz; nothing was written"
        )
    whole = evidence.outputs[0]
    made: dict[str, Any] = dict(evidence.inputs[0])
    for half in halves:
        names = [each.name for each in half.session.get_outputs()]
        feeds = {each.name: made[each.name] for each in half.session.get_inputs()}
        made |= dict(zip(names, half.session.run(names, feeds), strict=True))
    worst = error({name: made[name] for name in whole}, whole)
    if not worst <= evidence.allowed:
        raise RunError(
            f"{model.name}: the halves differ from the whole by {worst:.1e}"
            f" (allowed {evidence.allowed:.0e}); nothing was written"
        )
    return worst, evidence.allowed


def _document(
    model: Model,
    point: Point,
    halves: list[WrittenHalf],
    places: dict[str, str],
    worst: float,
    tolerance: float,
) -> dict[str, Any]:
    return {
        "model": model.name,
        "digest": model.digest,
        "point": {"index": point.index, "name": point.name, "bytes": point.bytes},
        "max_error": worst,
        "tolerance": tolerance,
        **{
            half.side: {
                "file": places[half.side],
                "inputs": [_described(each) for each in half.session.get_inputs()],
                "outputs": [_described(each) for each in half.session.get_outputs()],
            }
            for half in halves
        },
    }


def _described(tensor: ort.NodeArg) -> dict[str, Any]:
    return {"name": tensor.name, "type": tensor.type, "shape": list(tensor.shape)}


def _write_config(half: WrittenHalf, name: str, folder: Path) -> None:
    """config.pbtxt of Triton's ONNX Runtime backend; shapes are whole, so there is no batch axis
    beside them."""
    lines = [
        f"name: {json.dumps(name)}",
        'backend: "onnxruntime"',
        "max_batch_size: 0",
        *(_tensor_config("input", each) for each in half.session.get_inputs()),
        *(_tensor_config("output", each) for each in half.session.get_outputs()),
    ]
    (folder / name / "config.pbtxt").write_text("\n".join(lines) + "\n", "utf-8")


def _tensor_config(kind: str, tensor: ort.NodeArg) -> str:
    if tensor.type not in _RUNTIME_TYPES:
        raise InputError(f"Triton cannot serve {kind} {tensor.name!r} of type {tensor.type}")
    shape = [each if isinstance(each, int) else -1 for each in tensor.shape]
    dims = ", ".join(map(str, shape))
    size = f"dims: [ {dims} ]" if shape else "dims: [ 1 ], reshape: { shape: [ ] }"
    what = _RUNTIME_TYPES[tensor.type][1]
    return f"{kind} [ {{ name: {json.dumps(tensor.name)}, data_type: {what}, {size} }} ]"


def _move(folder: Path, out: Path) -> None:
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        place = out / file.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, place)
