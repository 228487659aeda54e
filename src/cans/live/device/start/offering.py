"""Giving a server the model that it lacks, if it takes models: resumable, a piece at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import file_digest
from os import PathLike, fspath
from pathlib import Path
from time import monotonic, sleep

from cans.errors import CansError, ModelError, Unreachable
from cans.live.fetching import Progress
from cans.live.sending import CHUNK
from cans.live.wire.link import Link
from cans.live.wire.model_files import FileDigest, ModelPiece, ModelReceipt

_log = logging.getLogger(__name__)
_PIECE_SECONDS = 60.0  # for one piece to be taken
_TRIAL_SECONDS = 300.0  # for the last one: the server checks, tries and loads the model
_ATTEMPTS = 5  # in a row that may bring nothing
_AGAIN_SECONDS = 3600.0  # before a server that let a model go is given it again
Shapes = Mapping[str, tuple[int, ...]]


class Offer:
    """A model file, and those beside it, for a server that lacks it. Used by one thread."""

    def __init__(
        self,
        source: str | PathLike[str],
        shapes: Shapes,
        progress: Progress | None = None,
        may_send: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`may_send` is asked before so many bytes go out."""
        self._source = Path(fspath(source))
        self._shapes = tuple(shapes.items())
        self._progress = progress
        self._may_send = may_send
        self._piece: ModelPiece | None = None
        self._paths: list[Path] = []
        self._given: dict[str, float] = {}  # to which server, and when
        self.why_not = ""  # of the last server that did not take it

    def give(self, link: Link) -> bool:
        """Whether the server has the model now; False: it does not take it (`why_not`), or had it
        a moment ago."""
        self.why_not = ""
        last = self._given.get(link.server)
        if last is not None and monotonic() - last < _AGAIN_SECONDS:
            return False
        try:
            piece = self._described()
            self._send(link, piece)
        except (CansError, OSError) as error:
            self.why_not = str(error)
            _log.info("the model is not given to the server",
                      extra={"model": piece_name(self._source), "reason": str(error)})  # fmt: skip
            return False
        self._given[link.server] = monotonic()
        return True

    def _described(self) -> ModelPiece:
        if self._piece is None:
            from cans.models.onnx.file import open_file

            opened = open_file(self._source)
            self._paths = [self._source, *opened.beside.values()]
            names = ["", *opened.beside]
            files = [FileDigest(name, path.stat().st_size, _digest(path))
                     for name, path in zip(names, self._paths, strict=True)]  # fmt: skip
            name = piece_name(self._source)
            self._piece = ModelPiece(opened.digest, tuple(files), self._shapes, name=name)
        return self._piece

    def _send(self, link: Link, piece: ModelPiece) -> None:
        receipt = link.send_model(piece, _PIECE_SECONDS)
        total, failed = sum(each.size for each in piece.files), 0
        while not receipt.ready:
            number = _first_missing(piece, receipt)
            offset = receipt.have[number] if number < len(receipt.have) else 0
            with self._paths[number].open("rb") as file:
                file.seek(offset)
                data = file.read(CHUNK)
            if not self._may_send(len(data)):
                raise ModelError("today's budget of the link is used up (--max-mb-per-day)")
            part = replace(piece, file=number, offset=offset, data=data)
            left = total - sum(receipt.have)
            try:
                seconds = _TRIAL_SECONDS if left <= len(data) else _PIECE_SECONDS
                receipt, before = link.send_model(part, seconds), receipt
                failed = 0 if sum(receipt.have) > sum(before.have) or receipt.ready else failed + 1
            except Unreachable:
                failed += 1
                sleep(0.1 * 2.0**failed)
            if failed >= _ATTEMPTS:
                raise Unreachable("the server stopped taking the model")
            if self._progress is not None:
                self._progress(sum(receipt.have), total)


def piece_name(path: Path) -> str:
    """What to call a model: by its file."""
    plain = "".join(each if each.isprintable() else "_" for each in path.stem)
    return plain[:64] or "model"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _first_missing(piece: ModelPiece, receipt: ModelReceipt) -> int:
    for number, each in enumerate(piece.files):
        if number >= len(receipt.have) or receipt.have[number] < each.size:
            return number
    raise Unreachable("the server has all of the model, and does not serve it")
