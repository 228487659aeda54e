"""Reading an ONNX file without its weights.

Parsing a 550 MB file copies it twice. Here the file is mapped, the few length-prefixed fields that
lead to the weights are walked, and everything but the big weights is handed to protobuf; a weight
becomes a region of the file, as if it were external data.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

# Field numbers in onnx.proto; they are part of the format and never change.
_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_NAME, _TENSOR_LOCATION = 8, 14
_TENSOR_DATA = {9, 4, 10}  # raw_data, and float_data / double_data, packed alike
_TENSOR_VALUES = {4, 5, 6, 7, 9, 10, 11}
_EXTERNAL = bytes([_TENSOR_LOCATION << 3, 1])
_LENGTH_PREFIXED = 2

SMALL = 4096  # bytes; smaller tensors stay, shape inference needs many of them


class MalformedError(Exception):
    """The bytes are not a protobuf message."""


@dataclass(frozen=True)
class _Field:
    number: int
    kind: int
    start: int  # of the tag
    body: int  # of the content
    end: int


def read_skeleton(data: mmap.mmap | bytes) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The model without its big weights, and where each of those lies: name -> offset, length."""
    view = memoryview(data)
    try:
        regions: dict[str, tuple[int, int]] = {}
        parts: list[bytes] = []
        for field in _fields(view, 0, len(view)):
            if field.number == _MODEL_GRAPH and field.kind == _LENGTH_PREFIXED:
                graph = _graph(view, field, regions)
                parts += [_tag(_MODEL_GRAPH), _varint(len(graph)), graph]
            else:
                parts.append(bytes(view[field.start : field.end]))
        return b"".join(parts), regions
    finally:
        view.release()


def _graph(view: memoryview, graph: _Field, regions: dict[str, tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    for field in _fields(view, graph.body, graph.end):
        big = field.number == _GRAPH_INITIALIZER and field.end - field.body > SMALL
        tensor = _without_data(view, field, regions) if big else None
        if tensor is None:
            parts.append(bytes(view[field.start : field.end]))
        else:
            parts += [_tag(_GRAPH_INITIALIZER), _varint(len(tensor)), tensor]
    return b"".join(parts)


def _without_data(
    view: memoryview, tensor: _Field, regions: dict[str, tuple[int, int]]
) -> bytes | None:
    """The tensor's message without its values; None when they are not one plain run of bytes."""
    fields = list(_fields(view, tensor.body, tensor.end))
    values = [each for each in fields if each.number in _TENSOR_VALUES]
    names = [each for each in fields if each.number == _TENSOR_NAME]
    if len(values) != 1 or len(names) != 1 or values[0].kind != _LENGTH_PREFIXED:
        return None
    if values[0].number not in _TENSOR_DATA:
        return None
    name = bytes(view[names[0].body : names[0].end]).decode("utf-8", "replace")
    if name in regions:
        raise MalformedError(f"two weights are called {name!r}")
    regions[name] = (values[0].body, values[0].end - values[0].body)
    kept = [each for each in fields if each.number not in (*_TENSOR_VALUES, _TENSOR_LOCATION)]
    return b"".join(bytes(view[each.start : each.end]) for each in kept) + _EXTERNAL


def _fields(view: memoryview, start: int, end: int) -> Iterator[_Field]:
    while start < end:
        tag, body = _read_varint(view, start, end)
        kind = tag & 7
        if kind == 0:
            _, stop = _read_varint(view, body, end)
        elif kind == 1:
            stop = body + 8
        elif kind == _LENGTH_PREFIXED:
            length, body = _read_varint(view, body, end)
            stop = body + length
        elif kind == 5:
            stop = body + 4
        else:
            raise MalformedError("unknown field type")
        if stop > end or tag >> 3 == 0:
            raise MalformedError("a field is longer than the file")
        yield _Field(tag >> 3, kind, start, body, stop)
        start = stop


def _read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedError("a number is cut off")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int) -> bytes:
    return bytes([number << 3 | _LENGTH_PREFIXED])
