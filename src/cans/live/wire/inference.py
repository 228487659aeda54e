"""Requests and replies that carry tensors: a checked header, and views of the received bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from cans.errors import RemoteProtocolError
from cans.learning import PoolKey, Upload
from cans.learning.congestion import Load
from cans.live.split import Array, Arrays, TensorSpec
from cans.live.wire import frame, learned
from cans.live.wire.account import Account, account_in, account_out
from cans.live.wire.learned import clock_time, duration_ms, name, parse
from cans.live.wire.load import LARGEST_POINT, load_in, load_out
from cans.live.wire.messages import (
    Known,
    PoolUpdate,
    Version,
    known_in,
    known_out,
    to_bytes,
    update_out,
    updates_in,
)
from cans.live.wire.proto import edge

MOST_DIMENSIONS = 32  # as NumPy has
_TRACE = re.compile("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
WHOLE = 4 << 20
"""Requests up to this size travel as one message (benchmarks/request_path.py)."""
PIECE = 1 << 20
"""Larger ones travel in pieces of this size: both sides copy some while others travel."""


class TensorMeta(NamedTuple):
    """A tensor before it was encoded."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: TensorSpec) -> TensorMeta:
        return cls(tensor.name, tensor.dtype, tuple(tensor.shape))


@dataclass(frozen=True)
class InferHeader:
    """Which back-end a device wants, and what it sends for it."""

    device: str
    incarnation: str
    model: str  # digest
    table: str  # version
    point: int
    codec: str
    tensors: tuple[TensorMeta, ...]
    uploads: tuple[Upload, ...] = ()  # delivery "next-contact"
    known: Known = field(default_factory=dict)  # pools: what is newer comes with the reply
    sizes: tuple[int, ...] = ()  # bytes of each encoded tensor, where they travel in pieces
    patience_ms: float = 0.0  # an answer later than this is of no use; 0: any time will do
    account: Account | None = None  # what this device did lately
    trace: str = ""  # W3C traceparent; empty: it does not trace

    def _message(self) -> Any:
        return edge.InferHeader(
            device=self.device,
            incarnation=self.incarnation,
            model=self.model,
            table=self.table,
            point=self.point,
            codec=self.codec,
            tensors=_metas_out(self.tensors),
            uploads=map(learned.upload_out, self.uploads),
            known=known_out(self.known),
            sizes=self.sizes,
            patience_ms=self.patience_ms,
            account=None if self.account is None else account_out(self.account),
            trace=self.trace,
        )

    @classmethod
    def _checked(cls, message: Any) -> InferHeader:
        if message.point > LARGEST_POINT:
            raise RemoteProtocolError(f"point {message.point} has no back-end")
        if len(message.sizes) > frame.MOST_TENSORS:
            raise RemoteProtocolError(f"{len(message.sizes)} sizes; at most {frame.MOST_TENSORS}")
        return cls(
            name(message.device, "device"),
            name(message.incarnation, "incarnation"),
            name(message.model, "model"),
            name(message.table, "table"),
            message.point,
            name(message.codec, "codec"),
            _metas_in(message.tensors),
            learned.uploads_in(message.uploads) if message.uploads else (),
            known_in(message.known) if message.known else _NOTHING,
            tuple(message.sizes),
            duration_ms(message.patience_ms, "patience"),
            account_in(message.account) if message.HasField("account") else None,
            _trace_in(message.trace) if message.trace else "",
        )


def _trace_in(text: str) -> str:
    if not _TRACE.fullmatch(text):
        raise RemoteProtocolError("a trace that is no traceparent")
    return text


_NOTHING: Mapping[PoolKey, Version] = {}


@dataclass(frozen=True)
class InferRequest:
    """A header and its tensors, encoded, in the header's order."""

    header: InferHeader
    tensors: Sequence[memoryview]

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.tensors)

    def with_patience(self, milliseconds: float) -> InferRequest:
        """The same request, of no use after so long."""
        return InferRequest(replace(self.header, patience_ms=milliseconds), self.tensors)

    def to_bytes(self) -> bytes:
        return frame.joined(to_bytes(self.header._message()), self.tensors)

    @classmethod
    def from_bytes(cls, data: bytes) -> InferRequest:
        header, tensors = frame.parted(data)
        return cls(InferHeader._checked(parse(edge.InferHeader, bytes(header))), tensors)

    def pieces(self) -> Iterator[bytes]:
        """The same request as messages of at most `PIECE` bytes of data."""
        header = replace(self.header, sizes=tuple(each.nbytes for each in self.tensors))
        yield to_bytes(edge.InferPiece(header=header._message()))
        for tensor in self.tensors:
            flat = tensor.cast("B") if tensor.format != "B" or tensor.ndim != 1 else tensor
            for at in range(0, flat.nbytes, PIECE):
                yield frame.piece(flat[at : at + PIECE])


def first_piece(data: bytes) -> InferHeader:
    """The header of a request in pieces."""
    return InferHeader._checked(parse(edge.InferPiece, data).header)


class Assembly:
    """The tensors of a request in pieces, each piece copied to its place as it comes."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self._sizes = tuple(sizes)
        self._total = sum(self._sizes)
        # Not zeroed: that would take the event loop's time before a byte has come.
        self._view = np.empty(self._total, np.uint8).data
        self._at = 0

    def add(self, piece: bytes) -> None:
        data = frame.piece_data(piece)
        if self._at + data.nbytes > self._total:
            raise RemoteProtocolError("more bytes than announced")
        self._view[self._at : self._at + data.nbytes] = data
        self._at += data.nbytes

    def tensors(self) -> tuple[memoryview, ...]:
        """All of them; raises if some have not come."""
        if self._at != self._total:
            raise RemoteProtocolError(f"{self._at} bytes came, {self._total} were announced")
        ends = np.cumsum(self._sizes, dtype=np.int64).tolist()
        return tuple(
            self._view[end - size : end] for end, size in zip(ends, self._sizes, strict=True)
        )


@dataclass(frozen=True)
class InferReply:
    """Outputs of a back-end and how long it took."""

    outputs: Arrays  # those read from a reply are views of its bytes
    compute_ms: float  # decoding and the back-end
    queue_ms: float  # waiting for a worker
    time: float
    pools: tuple[PoolUpdate, ...] = ()
    warming: bool = False  # the back-end was just built: its time is not typical
    load: Load | None = None  # how busy the server is; None: it does not tell
    nbytes: int = 0  # of the whole reply, as it came

    def to_bytes(self) -> bytes:
        metas, buffers = [], []
        for key, array in self.outputs.items():
            whole = np.ascontiguousarray(array)
            metas.append(TensorMeta(key, whole.dtype.name, array.shape))
            buffers.append(whole.reshape(-1).view(np.uint8).data)
        header = edge.InferReplyHeader(
            tensors=_metas_out(metas),
            compute_ms=self.compute_ms,
            queue_ms=self.queue_ms,
            pools=map(update_out, self.pools),
            time=self.time,
            warming=self.warming,
            load=load_out(self.load),
        )
        return frame.joined(to_bytes(header), buffers)

    @classmethod
    def from_bytes(cls, data: bytes) -> InferReply:
        header, tensors = frame.parted(data)
        message = parse(edge.InferReplyHeader, bytes(header))
        return cls(
            _arrays(_metas_in(message.tensors), tensors),
            # Any number: its reader has timed the round trip, and judges whether they fit in it.
            message.compute_ms,
            message.queue_ms,
            clock_time(message.time, "time of the server"),
            updates_in(message.pools) if message.pools else (),
            message.warming,
            load_in(message),
            len(data),
        )


def _metas_out(metas: Iterable[TensorMeta]) -> list[Any]:
    return [edge.TensorMeta(name=each.name, dtype=each.dtype, shape=each.shape) for each in metas]


def _metas_in(messages: Sequence[Any]) -> tuple[TensorMeta, ...]:
    if len(messages) > frame.MOST_TENSORS:
        raise RemoteProtocolError(f"{len(messages)} tensors; at most {frame.MOST_TENSORS}")
    if any(len(each.shape) > MOST_DIMENSIONS for each in messages):
        raise RemoteProtocolError(f"a tensor of more than {MOST_DIMENSIONS} dimensions")
    return tuple(
        TensorMeta(
            name(each.name, "name of a tensor"),
            name(each.dtype, "type of a tensor"),
            tuple(each.shape),
        )
        for each in messages
    )


def _arrays(metas: Sequence[TensorMeta], buffers: Sequence[memoryview]) -> dict[str, Array]:
    if len(metas) != len(buffers):
        raise RemoteProtocolError(f"{len(buffers)} tensors came, {len(metas)} were announced")
    arrays: dict[str, Array] = {}
    for meta, data in zip(metas, buffers, strict=True):
        try:
            arrays[meta.name] = np.frombuffer(data, np.dtype(meta.dtype)).reshape(meta.shape)
        except (TypeError, ValueError):
            raise RemoteProtocolError(
                f"{data.nbytes} bytes are no {meta.dtype[:16]}{list(meta.shape)[:8]}"
            ) from None
    return arrays
