"""Messages that carry tensors: a header and raw bytes, put together and taken apart without copies.

On the wire a frame is exactly `InferRequest` (or `InferReply`) of edge.proto: field 1 is the
header, field 2 a tensor. A protobuf library copies every tensor twice; here the parts are joined
once when written, and are views of the received bytes when read.
"""

from __future__ import annotations

from collections.abc import Iterable

from cans.errors import RemoteProtocolError

Buffer = bytes | bytearray | memoryview

_HEADER = 0x0A  # field 1, length-delimited
_TENSOR = 0x12  # field 2, length-delimited
_PADDING = 0x1A  # field 3, length-delimited
_ALIGNMENT = 16  # as `bytes` themselves have
MOST_TENSORS = 1024


def joined(header: bytes, tensors: Iterable[Buffer]) -> bytes:
    """One frame; each tensor begins at a multiple of 16 bytes, so that its reader need not copy it.

    >>> joined(b"hello, edge!", [b"abc"]).hex(" ")
    '0a 0c 68 65 6c 6c 6f 2c 20 65 64 67 65 21 12 03 61 62 63'
    """
    parts: list[Buffer] = [bytes([_HEADER]) + _varint(len(header)), header]
    at = len(parts[0]) + len(header)
    for tensor in tensors:
        size = tensor.nbytes if isinstance(tensor, memoryview) else len(tensor)
        lead = bytes([_TENSOR]) + _varint(size)
        gap = -(at + len(lead)) % _ALIGNMENT
        if gap:
            fill = (gap - 2) % _ALIGNMENT
            lead = bytes([_PADDING, fill]) + bytes(fill) + lead
        parts += (lead, tensor)
        at += len(lead) + size
    return b"".join(parts)


def parted(frame: Buffer) -> tuple[memoryview, tuple[memoryview, ...]]:
    """The header and the tensors of a frame, as views of it.

    >>> header, tensors = parted(b"\\n\\x02hi\\x12\\x03abc")
    >>> bytes(header), [bytes(each) for each in tensors]
    (b'hi', [b'abc'])
    """
    view = memoryview(frame)
    header: memoryview | None = None
    tensors: list[memoryview] = []
    at, end = 0, view.nbytes
    while at < end:
        tag, at = _read_varint(view, at)
        if tag not in (_HEADER, _TENSOR, _PADDING):
            raise RemoteProtocolError(f"a frame has no field with tag {tag}")
        size, at = _read_varint(view, at)
        if size > end - at:
            raise RemoteProtocolError(f"a part of {size} bytes in a frame with {end - at} left")
        part = view[at : at + size]
        at += size
        if tag == _TENSOR:
            tensors.append(part)
        elif tag == _PADDING:
            continue
        elif header is None:
            header = part
        else:
            raise RemoteProtocolError("a frame with two headers")
        if len(tensors) > MOST_TENSORS:
            raise RemoteProtocolError(f"a frame with more than {MOST_TENSORS} tensors")
    if header is None:
        raise RemoteProtocolError("a frame without a header")
    return header, tuple(tensors)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= view.nbytes or shift > 63:
            raise RemoteProtocolError("a number in a frame does not end")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def field_bytes(number: int, data: bytes) -> bytes:
    """A field of any protobuf message that holds bytes, text or another message."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def piece(data: memoryview) -> bytes:
    """An `InferPiece` with nothing but data."""
    return b"".join((bytes([_TENSOR]) + _varint(data.nbytes), data))


def piece_data(message: bytes) -> memoryview:
    """The data of an `InferPiece` that has nothing else, without a copy.

    >>> bytes(piece_data(piece(memoryview(b"abc"))))
    b'abc'
    """
    view = memoryview(message)
    tag, at = _read_varint(view, 0)
    size, at = _read_varint(view, at)
    if tag != _TENSOR or size != view.nbytes - at:
        raise RemoteProtocolError("a piece of a request with more than data in it")
    return view[at:]
