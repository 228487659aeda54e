"""Messages of FetchModel: which file of a model, and its pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cans.errors import RemoteProtocolError
from cans.live.safe_files import LONGEST_NAME, MOST_FILES
from cans.live.wire.learned import parse
from cans.live.wire.messages import optional_name, to_bytes
from cans.live.wire.proto import edge


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
