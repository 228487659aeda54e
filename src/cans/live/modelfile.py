"""Sending a model file, from any byte on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import file_digest
from pathlib import Path
from typing import Any

from cans.errors import Refused, RemoteProtocolError
from cans.live.execution import SplitModel
from cans.live.proto import edge

CHUNK = 1 << 20


async def chunks(model: SplitModel, offset: int) -> AsyncIterator[Any]:
    """The file of a model; the first chunk says what it will be, and has no data."""
    if model.file is None:
        raise Refused(f"{model.name} has no file to send", "UNIMPLEMENTED")
    loop = asyncio.get_running_loop()
    with model.file.open("rb") as file:
        size = file.seek(0, 2)
        if offset > size:
            raise RemoteProtocolError(f"offset {offset} in a file of {size} bytes")
        file.seek(offset)
        yield edge.ModelChunk(size=size, sha256=model.file_sha256, name=model.file.name)
        while data := await loop.run_in_executor(None, file.read, CHUNK):
            yield edge.ModelChunk(data=data)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
