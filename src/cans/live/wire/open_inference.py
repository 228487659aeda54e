"""Messages of the Open Inference Protocol (v2) as values, checked when they come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cans.errors import RemoteProtocolError
from cans.live.split import Array, Arrays, TensorSpec
from cans.live.wire.frame import MOST_TENSORS
from cans.live.wire.learned import LONGEST_NAME, parse
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
LONGEST_ID = 1024  # characters of a request's id, which is echoed


@dataclass(frozen=True)
class Said:
    """An answer of a few fields."""

    message: str  # its name in the protocol
    fields: Mapping[str, object]

    def to_bytes(self) -> bytes:
        return _bytes(open_inference(self.message)(**self.fields))


def nothing(data: bytes) -> None:
    """A request that says nothing."""


def model_ready_request(data: bytes) -> str:
    """The name of the model that is asked about."""
    return _name(parse(open_inference("ModelReadyRequest"), data).name)


def model_metadata_request(data: bytes) -> str:
    return _name(parse(open_inference("ModelMetadataRequest"), data).name)


@dataclass(frozen=True)
class ModelDescription:
    """What a model takes and gives."""

    name: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[str]

    def to_bytes(self) -> bytes:
        message = open_inference("ModelMetadataResponse")(
            name=self.name, versions=["1"], platform="onnxruntime_onnx"
        )
        for tensor in self.inputs:
            message.inputs.add(
                name=tensor.name, datatype=DATATYPES[tensor.dtype], shape=tensor.shape
            )
        for name in self.outputs:
            message.outputs.add(name=name)
        return _bytes(message)


@dataclass(frozen=True)
class RawInput:
    """An input as it came: raw bytes, or values in a list of the message."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: bytes | None
    contents: Any

    def array(self, wanted: TensorSpec) -> Array:
        """The tensor that a model takes, or an error that says what it takes."""
        shape, datatype = self.shape, DATATYPES[wanted.dtype]
        if self.datatype != datatype or shape != tuple(wanted.shape):
            raise RemoteProtocolError(
                f"input {wanted.name!r} must be {datatype}{list(wanted.shape)}, "
                f"not {self.datatype[:16]}{list(shape)[:8]}"
            )
        try:
            if self.raw is not None:
                return np.frombuffer(self.raw, wanted.dtype).reshape(shape)
            if wanted.dtype not in _CONTENTS:
                raise RemoteProtocolError(f"{datatype} must come as raw_input_contents")
            values = getattr(self.contents, _CONTENTS[wanted.dtype])
            return np.array(values, wanted.dtype).reshape(shape)
        except (ValueError, OverflowError) as error:
            raise RemoteProtocolError(f"input {wanted.name!r}: {error}") from None


@dataclass(frozen=True)
class WholeRequest:
    """Inputs of a whole model."""

    model: str
    id: str
    inputs: tuple[RawInput, ...]
    outputs: tuple[str, ...]  # those that are wanted; none: all

    @classmethod
    def from_bytes(cls, data: bytes) -> WholeRequest:
        message = parse(open_inference("ModelInferRequest"), data)
        raw = message.raw_input_contents
        if max(len(message.inputs), len(message.outputs)) > MOST_TENSORS:
            raise RemoteProtocolError(f"at most {MOST_TENSORS} inputs and outputs")
        if raw and len(raw) != len(message.inputs):
            raise RemoteProtocolError(f"{len(raw)} raw contents for {len(message.inputs)} inputs")
        inputs = tuple(
            RawInput(each.name, each.datatype, tuple(each.shape), raw[i] if raw else None,
                     each.contents)
            for i, each in enumerate(message.inputs)
        )  # fmt: skip
        if len(message.id) > LONGEST_ID:
            raise RemoteProtocolError(f"an id of {len(message.id)} characters")
        outputs = tuple(each.name for each in message.outputs)
        return cls(_name(message.model_name), message.id, inputs, outputs)

    def arrays(self, wanted: Sequence[TensorSpec]) -> dict[str, Array]:
        """The inputs as a model takes them."""
        sent = {each.name: each for each in self.inputs}
        if set(sent) != {each.name for each in wanted} or len(sent) != len(self.inputs):
            names = ", ".join(each.name for each in wanted)
            raise RemoteProtocolError(f"this model takes exactly the inputs: {names}")
        return {each.name: sent[each.name].array(each) for each in wanted}


@dataclass(frozen=True)
class WholeReply:
    """Outputs of a whole model."""

    model: str
    id: str
    outputs: Arrays

    def to_bytes(self) -> bytes:
        message = open_inference("ModelInferResponse")(
            model_name=self.model, model_version="1", id=self.id
        )
        for name, array in self.outputs.items():
            datatype = DATATYPES[array.dtype.name]
            message.outputs.add(name=name, datatype=datatype, shape=array.shape)
            message.raw_output_contents.append(np.ascontiguousarray(array).tobytes())
        return _bytes(message)


def _name(text: str) -> str:
    if len(text) > LONGEST_NAME:
        raise RemoteProtocolError(f"a model name of {len(text)} characters")
    return text


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
