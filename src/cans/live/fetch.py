"""Getting a model from the server: resumable, checked against its digest, shown as it comes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import file_digest
from pathlib import Path

from cans.errors import RemoteProtocolError, Unreachable
from cans.live.link import Link
from cans.live.proto import edge

Progress = Callable[[int, int], None]  # bytes so far, bytes in all


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cans" / "models"


def fetch_model(
    link: Link,
    model: str,
    sha256: str,
    folder: Path,
    progress: Progress | None = None,
    attempts: int = 5,
) -> Path:
    """The file with this digest: from the cache, or from the server, going on where it stopped."""
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise RemoteProtocolError("the server names no proper digest of its model file")
    target, part = folder / f"{sha256}.onnx", folder / f"{sha256}.part"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(attempts):
        try:
            _receive(link, model, sha256, part, progress)
            break
        except Unreachable:
            if attempt == attempts - 1:
                raise
    with part.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != sha256:
        part.unlink()
        raise RemoteProtocolError(
            "the model that came is not the one announced; it was thrown away"
        )
    part.replace(target)
    return target


def _receive(link: Link, model: str, sha256: str, part: Path, progress: Progress | None) -> None:
    with part.open("ab") as file:
        have = file.tell()
        stream = link.fetch(edge.FetchModelRequest(model=model, offset=have))
        size = None
        for chunk in stream:
            if size is None:
                size = chunk.size
                if chunk.sha256 != sha256 or have > size:
                    stream.cancel()
                    part.unlink()
                    raise RemoteProtocolError("the server's model changed while it was fetched")
            file.write(chunk.data)
            have += len(chunk.data)
            if have > size:
                stream.cancel()
                raise RemoteProtocolError("the server sent more than it announced")
            if progress is not None:
                progress(have, size)
        if size is None or have < size:
            raise Unreachable("the model stopped coming")
