"""Files of a model on their way from a device: bounded, resumable, checked against their digests.

A model arrives as `DIGEST.part/` and is `DIGEST/` when all of it is there: the model file as
`model.onnx`, the files beside it under the names that it knows them by.
"""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path

from cans.errors import Refused, RemoteProtocolError, RunError
from cans.live.safe_files import appending, check_names, size_of
from cans.live.wire.model_files import ModelPiece

MAIN = "model.onnx"
_MOST_PARTIAL = 8  # models on their way at a time; those that stopped longest ago go


class Arriving:
    """The folder that models arrive in. Used by one thread at a time."""

    def __init__(self, folder: Path, largest: int) -> None:
        self.folder = folder
        self._largest = largest  # bytes of a model

    def check(self, piece: ModelPiece) -> None:
        """Refuse what is too large, or would be written elsewhere."""
        main, *beside = piece.files
        total = sum(each.size for each in piece.files)
        if total > self._largest:
            raise Refused(
                f"a model of {total / 1e6:.0f} MB; this server takes up to "
                f"{self._largest / 1e6:.0f} MB"
            )
        if not beside and main.sha256 != piece.model:
            raise RemoteProtocolError("a model in one file has the digest of that file")
        check_names([each.name for each in beside], MAIN)

    def take(self, piece: ModelPiece) -> tuple[int, ...]:
        """Write a piece where the last one ended; returns the bytes of each file."""
        self.check(piece)
        part = self._part(piece.model)
        files = _paths(piece, part)
        try:
            if piece.data:
                self._forget_old(part)
                part.mkdir(parents=True, exist_ok=True)
                self._append(piece, files[piece.file], part)
            return tuple(size_of(each) for each in files)
        except OSError as error:
            raise RunError(f"the server cannot keep the model: {error.strerror}") from None

    def _append(self, piece: ModelPiece, path: Path, part: Path) -> None:
        size = piece.files[piece.file].size
        if shutil.disk_usage(part).free < size:
            raise Refused("the server's disk is full")
        with appending(path, part) as out:
            have = out.tell()
            if piece.offset != have or have + len(piece.data) > size:
                return  # the receipt says where to go on
            out.write(piece.data)

    def is_complete(self, piece: ModelPiece, have: tuple[int, ...]) -> bool:
        return have == tuple(each.size for each in piece.files)

    def finish(self, piece: ModelPiece) -> Path:
        """Check what has arrived and give it its place; returns the model file."""
        part = self._part(piece.model)
        whole = sha256()
        for each, path in zip(piece.files, _paths(piece, part), strict=True):
            own = sha256()
            with path.open("rb") as file:
                while data := file.read(1 << 20):
                    own.update(data)
                    whole.update(data)
                os.fsync(file.fileno())
            if own.hexdigest() != each.sha256:
                path.unlink()
                raise RemoteProtocolError(f"{each.name or 'the model'} is not what was announced")
        if whole.hexdigest() != piece.model:
            shutil.rmtree(part)
            raise RemoteProtocolError("the files that came are not one model")
        place = self.folder / piece.model
        shutil.rmtree(place, ignore_errors=True)
        part.replace(place)
        return place / MAIN

    def _part(self, digest: str) -> Path:
        return self.folder / f"{digest}.part"

    def _forget_old(self, part: Path) -> None:
        others = [each for each in self.folder.glob("*.part") if each != part]
        others.sort(key=lambda each: each.stat().st_mtime)
        for each in others[: max(len(others) - _MOST_PARTIAL + 1, 0)]:
            shutil.rmtree(each, ignore_errors=True)


def _paths(piece: ModelPiece, folder: Path) -> list[Path]:
    return [folder / MAIN, *(folder / each.name for each in piece.files[1:])]
