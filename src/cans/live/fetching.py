"""Getting a model from the server: resumable, checked against its digests, shown as it comes.

A model in one file ends up as `DIGEST.onnx`, one with weights in other files as a folder: the model
is `DIGEST/DIGEST.onnx`, and the others are beside it under the names that it knows them by.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import sleep
from typing import BinaryIO

from cans.errors import LocalProtocolError, RemoteProtocolError, RunError, Unreachable
from cans.live.safe_files import appending, check_names, one_at_a_time, size_of
from cans.live.wire.link import Link, Stream
from cans.live.wire.model_files import FetchRequest, FileDigest, ModelChunk

Progress = Callable[[int, int], None]  # bytes so far, bytes in all


def fetch_model(
    link: Link,
    digest: str,
    file_sha256: str,
    folder: Path,
    progress: Progress | None = None,
    attempts: int = 5,
) -> Path:
    """The file of the model with this digest: from the cache, or from the server, going on where it
    stopped. The two digests differ when the model has weights in other files."""
    if not all(re.fullmatch("[0-9a-f]{64}", each) for each in (digest, file_sha256)):
        raise RemoteProtocolError("the server names no proper digest of its model")
    alone = digest == file_sha256
    target = folder / f"{digest}.onnx" if alone else folder / digest / f"{digest}.onnx"
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder):
            if not target.exists():
                part = folder / f"{digest}.part"
                main = _File("", part if alone else part / target.name, file_sha256)
                _Fetching(link, digest, main, progress).run(attempts)
                part.replace(target if alone else target.parent)
    except OSError as error:
        raise RunError(f"cannot keep the model in {folder}: {error.strerror or error}") from None
    return target


@dataclass(frozen=True)
class _File:
    """One file on its way."""

    name: str  # that the server knows it by; empty: the model file
    path: Path  # where it goes
    sha256: str
    size: int | None = None  # None: the server has not said yet


class _Fetching:
    """One model on its way."""

    def __init__(self, link: Link, digest: str, main: _File, progress: Progress | None) -> None:
        self._link = link
        self._digest = digest
        self._main = main
        self._beside: list[_File] = []
        self._total = 0  # bytes of all files
        self._progress = progress

    def run(self, attempts: int) -> None:
        """Get every file and check them; so many attempts in a row may bring nothing."""
        failed = 0
        while True:
            before = self._have()
            try:
                self._receive(self._main)
                for each in self._beside:
                    if size_of(each.path) != each.size:
                        self._receive(each)
                break
            except Unreachable:
                failed = 1 if self._have() > before else failed + 1
                if failed >= attempts:
                    raise
                sleep(0.1 * 2.0**failed)
        self._check()

    def _have(self) -> int:
        return sum(size_of(each.path) for each in (self._main, *self._beside))

    def _receive(self, file: _File) -> None:
        with appending(file.path, self._main.path.parent) as out:
            have = out.tell()
            if file.size is not None and have > file.size:
                have = out.truncate(0)
            request = FetchRequest(self._digest, have, file.name)
            stream = self._link.fetch(request)
            try:
                self._write(file, have, stream, out)
            except LocalProtocolError:
                if not have:
                    raise
                out.truncate(0)
                raise Unreachable("more is here than the server has: begun anew") from None
            finally:
                stream.cancel()
            out.flush()
            os.fsync(out.fileno())  # a cut of power must not leave a name without its bytes

    def _write(self, file: _File, have: int, stream: Stream[ModelChunk], out: BinaryIO) -> None:
        size, others = None, 0
        for chunk in stream:
            if size is None:
                if chunk.file is None:
                    raise RemoteProtocolError("the server sent data before it named the file")
                size = chunk.file.size
                if chunk.file.sha256 != file.sha256 or file.size not in (None, size):
                    raise RemoteProtocolError("the server's model changed while it was fetched")
                if file is self._main:
                    self._announced(size, chunk.beside)
                others = self._have() - have
            out.write(chunk.data)
            have += len(chunk.data)
            if have > size:
                raise RemoteProtocolError("the server sent more than it announced")
            if self._progress is not None:
                self._progress(others + have, self._total)
        if size is None or have < size:
            raise Unreachable("the model stopped coming")

    def _announced(self, size: int, beside: Sequence[FileDigest]) -> None:
        """What comes beside the model file; nothing is written before it is known to fit."""
        folder = self._main.path.parent
        if beside and self._main.sha256 == self._digest:
            raise RemoteProtocolError("a model in one file has none beside it")
        check_names([each.name for each in beside], self._main.path.name)
        self._beside = [_File(each.name, folder / each.name, each.sha256, each.size)
                        for each in beside]  # fmt: skip
        self._total = size + sum(each.size for each in beside)
        missing, free = self._total - self._have(), shutil.disk_usage(folder).free
        if missing > free:
            raise RunError(f"the model needs {missing} more bytes in {folder}, {free} are free")

    def _check(self) -> None:
        """Each file by its own digest, and all of them together by the model's."""
        whole = sha256()
        for each in (self._main, *self._beside):
            own = sha256()
            with each.path.open("rb") as file:
                while data := file.read(1 << 20):
                    own.update(data)
                    if self._beside:
                        whole.update(data)
            if own.hexdigest() != each.sha256:
                each.path.unlink()
                name = each.name or "the model"
                raise RemoteProtocolError(f"{name} is not what was announced; it was thrown away")
        if self._main.sha256 != self._digest and whole.hexdigest() != self._digest:
            shutil.rmtree(self._main.path.parent)
            raise RemoteProtocolError("the files that came are not one model; thrown away")
