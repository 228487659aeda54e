"""The Open Inference Protocol (v2): whole-model inference for clients that know nothing of CANS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cans import __version__
from cans.errors import Refused, RemoteProtocolError
from cans.live.server.backends import BackEnds
from cans.live.server.catalogue import Catalogue
from cans.live.server.edge_service import Caller
from cans.live.split import Array, SplitModel, TensorSpec
from cans.live.wire.messages import parse
from cans.live.wire.proto import open_inference

DATATYPES = {
    "float32": "FP32", "float16": "FP16", "float64": "FP64", "bool": "BOOL",
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
# The repeated field of InferTensorContents that holds values of a type.
_CONTENTS = {
    "bool": "bool_contents", "int8": "int_contents", "int16": "int_contents",
    "int32": "int_contents", "int64": "int64_contents", "uint8": "uint_contents",
    "uint16": "uint_contents", "uint32": "uint_contents", "uint64": "uint64_contents",
    "float32": "fp32_contents", "float64": "fp64_contents",
}  # fmt: skip


class OpenInferenceService:
    def __init__(self, name: str, catalogue: Catalogue, back_ends: BackEnds) -> None:
        self._name = name
        self._catalogue = catalogue
        self._back_ends = back_ends

    async def server_live(self, data: bytes, caller: Caller) -> bytes:
        return _bytes("ServerLiveResponse", live=True)

    async def server_ready(self, data: bytes, caller: Caller) -> bytes:
        return _bytes("ServerReadyResponse", ready=True)

    async def model_ready(self, data: bytes, caller: Caller) -> bytes:
        self._model(parse(open_inference("ModelReadyRequest"), data).name)
        return _bytes("ModelReadyResponse", ready=True)

    async def server_metadata(self, data: bytes, caller: Caller) -> bytes:
        return _bytes("ServerMetadataResponse", name="cans", version=__version__)

    async def model_metadata(self, data: bytes, caller: Caller) -> bytes:
        model = self._model(parse(open_inference("ModelMetadataRequest"), data).name)
        described = open_inference("ModelMetadataResponse")(
            name=model.name, versions=["1"], platform="onnxruntime_onnx"
        )
        for tensor in model.inputs:
            described.inputs.add(
                name=tensor.name, datatype=DATATYPES[tensor.dtype], shape=tensor.shape
            )
        for name in model.outputs:
            described.outputs.add(name=name)
        data = described.SerializeToString()
        return data

    async def model_infer(self, data: bytes, caller: Caller) -> bytes:
        request = parse(open_inference("ModelInferRequest"), data)
        model = self._model(request.model_name)
        inputs = _inputs(request, model.inputs)
        wanted = [each.name for each in request.outputs] or list(model.outputs)
        for name in wanted:
            if name not in model.outputs:
                raise RemoteProtocolError(f"{model.name} has no output {name[:64]!r}")
        answer = await self._back_ends.run_whole(model, inputs)
        reply = open_inference("ModelInferResponse")(
            model_name=model.name, model_version="1", id=request.id
        )
        for name in wanted:
            array = np.ascontiguousarray(answer.outputs[name])
            datatype = DATATYPES[array.dtype.name]
            reply.outputs.add(name=name, datatype=datatype, shape=answer.outputs[name].shape)
            reply.raw_output_contents.append(array.tobytes())
        data = reply.SerializeToString()
        return data

    def _model(self, name: str) -> SplitModel:
        if not name:
            raise Refused("a model name is needed", "INVALID_ARGUMENT")
        return self._catalogue.find(name)


def _inputs(request: Any, wanted: Sequence[TensorSpec]) -> dict[str, Array]:
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise RemoteProtocolError(f"{len(raw)} raw contents for {len(request.inputs)} inputs")
    sent = {each.name: (each, raw[i] if raw else None) for i, each in enumerate(request.inputs)}
    if set(sent) != {each.name for each in wanted} or len(sent) != len(request.inputs):
        names = ", ".join(each.name for each in wanted)
        raise RemoteProtocolError(f"this model takes exactly the inputs: {names}")
    return {each.name: _array(*sent[each.name], each) for each in wanted}


def _array(message: Any, raw: bytes | None, wanted: TensorSpec) -> Array:
    shape = tuple(message.shape)
    if message.datatype != DATATYPES[wanted.dtype] or shape != tuple(wanted.shape):
        raise RemoteProtocolError(
            f"input {wanted.name!r} must be {DATATYPES[wanted.dtype]}{list(wanted.shape)}, "
            f"not {message.datatype[:16]}{list(shape)[:8]}"
        )
    try:
        if raw is not None:
            return np.frombuffer(raw, wanted.dtype).reshape(shape)
        if wanted.dtype not in _CONTENTS:
            raise RemoteProtocolError(f"{message.datatype} must come as raw_input_contents")
        values = getattr(message.contents, _CONTENTS[wanted.dtype])
        return np.array(values, wanted.dtype).reshape(shape)
    except (ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"input {wanted.name!r}: {error}") from None


def _bytes(message: str, **fields: Any) -> bytes:
    data: bytes = open_inference(message)(**fields).SerializeToString()
    return data
