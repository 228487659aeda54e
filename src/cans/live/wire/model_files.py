"""Messages of FetchModel and SendModel: which file of a model, and its pieces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from cans.errors import RemoteProtocolError
from cans.live.safe_files import LONGEST_NAME, MOST_FILES
from cans.live.wire.learned import name, parse
from cans.live.wire.messages import optional_name, to_bytes
from cans.live.wire.proto import edge

_MOST_INPUTS, _MOST_DIMENSIONS = 256, 16


@dataclass(frozen=True)
class FetchRequest:
    """A file of a model, from a byte on."""

    model: str = ""  # digest or name; empty: the server's only one
    offset: int = 0
    file: str = ""  # one of those beside the model file; empty: the model file itself

    def to_bytes(self) -> bytes:
        message = edge.FetchModelRequest(model=self.model, offset=self.offset, file=self.file)
        return to_bytes(message)

    @classmethod
    def from_bytes(cls, data: bytes) -> FetchRequest:
        message = parse(edge.FetchModelRequest, data)
        if len(message.file) > LONGEST_NAME:
            raise RemoteProtocolError(f"a file name of {len(message.file)} characters")
        return cls(optional_name(message.model, "model"), message.offset, message.file)


class FileDigest(NamedTuple):
    """A file of a model by name, size and digest."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class ModelChunk:
    """A piece of a file. The first one says what the file will be, and has no data."""

    data: bytes = b""
    file: FileDigest | None = None
    beside: tuple[FileDigest, ...] = ()  # other files of the model, where it has any

    def to_bytes(self) -> bytes:
        if self.file is None:
            return to_bytes(edge.ModelChunk(data=self.data))
        beside = [edge.ModelFile(**each._asdict()) for each in self.beside]
        return to_bytes(edge.ModelChunk(**self.file._asdict(), beside=beside))

    @classmethod
    def from_bytes(cls, data: bytes) -> ModelChunk:
        message = parse(edge.ModelChunk, data)
        if not message.sha256:
            return cls(message.data)
        if len(message.beside) > MOST_FILES:
            raise RemoteProtocolError(f"{len(message.beside)} files of one model")
        beside = tuple(FileDigest(each.name, each.size, each.sha256) for each in message.beside)
        return cls(message.data, FileDigest(message.name, message.size, message.sha256), beside)


@dataclass(frozen=True)
class ModelPiece:
    """A piece of a model that a device gives to its server, and which model it is of."""

    model: str  # its digest
    files: tuple[FileDigest, ...]  # the model file first
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()  # of open inputs
    file: int = 0  # which of the files
    offset: int = 0
    data: bytes = b""  # empty: only asks how much the server has
    name: str = ""  # for people

    def to_bytes(self) -> bytes:
        return to_bytes(
            edge.ModelPiece(
                model=self.model,
                files=[edge.ModelFile(**each._asdict()) for each in self.files],
                shapes=[edge.TensorMeta(name=name, shape=shape) for name, shape in self.shapes],
                file=self.file, offset=self.offset, data=self.data, name=self.name,
            )
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> ModelPiece:
        message = parse(edge.ModelPiece, data)
        digests = [message.model, *(each.sha256 for each in message.files)]
        if not all(re.fullmatch("[0-9a-f]{64}", each) for each in digests):
            raise RemoteProtocolError("a model and its files are named by their digests")
        if not 1 <= len(message.files) <= MOST_FILES or message.file >= len(message.files):
            raise RemoteProtocolError(f"file {message.file} of {len(message.files)}")
        if len(message.shapes) > _MOST_INPUTS or any(
            len(each.shape) > _MOST_DIMENSIONS or not all(0 < size < 1 << 31 for size in each.shape)
            for each in message.shapes
        ):
            raise RemoteProtocolError("these are no shapes of inputs")
        return cls(
            message.model,
            tuple(FileDigest(each.name, each.size, each.sha256) for each in message.files),
            tuple((name(each.name, "input"), tuple(each.shape)) for each in message.shapes),
            message.file,
            message.offset,
            message.data,
            optional_name(message.name, "name"),
        )


@dataclass(frozen=True)
class ModelReceipt:
    """How much of a model a server has."""

    have: tuple[int, ...]  # bytes of each file
    ready: bool = False  # the model is served

    def to_bytes(self) -> bytes:
        return to_bytes(edge.ModelReceipt(have=self.have, ready=self.ready))

    @classmethod
    def from_bytes(cls, data: bytes) -> ModelReceipt:
        message = parse(edge.ModelReceipt, data)
        return cls(tuple(message.have), message.ready)
