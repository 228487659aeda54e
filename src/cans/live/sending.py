"""Sending a model: its file and those beside it that hold weights, each from any byte on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from cans import models
from cans.errors import ModelError, Refused, RemoteProtocolError
from cans.live.split import ModelFile, SplitModel
from cans.live.wire.model_files import FileDigest, ModelChunk

_log = logging.getLogger(__name__)
CHUNK = 1 << 20


def files_of(model: models.Model) -> tuple[ModelFile, ...]:
    """What can be sent of a model: its file, and then those beside it; nothing of a built-in one.

    Nothing either if a link leads out of the model's folder: a model that was unpacked here might
    name any file of this machine in that way.
    """
    source = model.source
    if source is None:
        return ()
    if not model.beside:
        return (ModelFile(source.name, source, source.stat().st_size, model.digest),)
    home = source.absolute().parent.resolve()
    for name, path in model.beside.items():
        if not path.is_relative_to(home):
            reason = f"{name} is a link out of its folder; put the file itself there"
            _log.warning("devices cannot fetch", extra={"model": model.name, "reason": reason})
            return ()
    whole = sha256()
    found = {source.name: source, **model.beside}
    files = tuple(_described(name, path, whole) for name, path in found.items())
    if whole.hexdigest() != model.digest:
        raise ModelError(f"{source} or its weights changed while they were read; start again")
    return files


def _described(name: str, path: Path, whole: Any) -> ModelFile:
    own, size = sha256(), 0
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            own.update(data)
            whole.update(data)
            size += len(data)
    return ModelFile(name, path, size, own.hexdigest())


async def chunks(model: SplitModel, name: str, offset: int) -> AsyncIterator[ModelChunk]:
    """A file of a model, by name; the first chunk says what it will be, and has no data."""
    if not model.files:
        raise Refused(f"{model.name} has no file to send", "UNIMPLEMENTED")
    main, *beside = model.files
    wanted = {"": main, **{each.name: each for each in beside}}.get(name)
    if wanted is None:
        raise Refused(f"no file {name[:64]!r} belongs to {model.name}", "NOT_FOUND")
    loop = asyncio.get_running_loop()
    try:
        file = wanted.path.open("rb")
    except OSError as error:
        raise Refused(f"{wanted.name} is gone from the server: {error.strerror}") from None
    with file:
        if file.seek(0, 2) != wanted.size:
            raise Refused(f"{wanted.name} has changed since the server started")
        if offset > wanted.size:
            raise RemoteProtocolError(f"offset {offset} in a file of {wanted.size} bytes")
        file.seek(offset)
        others = beside if wanted is main else []
        yield ModelChunk(file=_digest(wanted), beside=tuple(map(_digest, others)))
        while data := await loop.run_in_executor(None, file.read, CHUNK):
            yield ModelChunk(data)


def _digest(file: ModelFile) -> FileDigest:
    return FileDigest(file.name, file.size, file.sha256)
