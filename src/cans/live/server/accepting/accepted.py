"""The models that devices gave to a server: so many, kept across restarts, least used first out."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from cans.errors import CansError, InputError, Refused
from cans.live.server.accepting.arriving import MAIN, Arriving
from cans.live.server.accepting.trying import try_apart
from cans.live.server.catalogue import Catalogue
from cans.live.split import Cutting, SplitModel
from cans.live.wire.model_files import ModelPiece, ModelReceipt

_log = logging.getLogger(__name__)
Load = Callable[[Path, Cutting], SplitModel]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]
_MOST_REFUSED = 1000  # models whose refusal is remembered
_TOUCH_SECONDS = 60.0  # between notes on the disk that a model is used


@dataclass(frozen=True)
class AcceptOptions:
    """What devices may give."""

    folder: Path
    largest: int = 1 << 30  # bytes of one model
    most: int = 16  # models; the one unused for longest goes
    seconds: float = 120.0  # that one may take to be tried
    cutting: Cutting = field(default_factory=Cutting)  # but for the shapes of open inputs

    def __post_init__(self) -> None:
        if self.largest < 1 or self.most < 1:
            raise InputError("--max-model-mb and --max-models must be at least 1")


class AcceptedModels:
    """Takes models from devices into a catalogue. All methods belong to one event loop."""

    def __init__(self, options: AcceptOptions, load: Load) -> None:
        self._options = options
        self._load = load
        try:
            options.folder.mkdir(parents=True, exist_ok=True)
            mode = os.R_OK | os.W_OK | os.X_OK
            if not options.folder.is_dir() or not os.access(options.folder, mode):
                raise PermissionError(13, "no folder that can be written")
        except OSError as error:
            raise InputError(f"--accept-models {options.folder}: {error.strerror}") from None
        self._arriving = Arriving(options.folder, options.largest)
        self._names: OrderedDict[str, str] = OrderedDict()  # by digest; used last at the end
        self._touched: dict[str, float] = {}
        self._refused: OrderedDict[tuple[str, Shapes], str] = OrderedDict()  # and why
        self._one = asyncio.Lock()  # model is checked and tried at a time

    def first(self) -> list[SplitModel]:
        """Those of the last run. One that cannot be served any more is removed."""
        folders = [each for each in self._options.folder.iterdir() if _is_digest(each.name)]
        models = []
        for folder in sorted(folders, key=lambda each: each.stat().st_mtime):
            try:
                models.append(self._loaded(folder.name))
                self._names[folder.name] = models[-1].name
            except (CansError, OSError, ValueError) as error:
                _log.warning("a model that was sent is removed",
                             extra={"digest": folder.name[:12], "reason": str(error)})  # fmt: skip
                self._remove_files(folder.name)
        while len(models) > self._options.most:
            self._forget(models.pop(0).digest)
        return models

    def used(self, digest: str) -> None:
        """A device uses this model."""
        if digest in self._names:
            self._names.move_to_end(digest)
            now = monotonic()
            if now - self._touched.get(digest, -_TOUCH_SECONDS) >= _TOUCH_SECONDS:
                self._touched[digest] = now
                os.utime(self._options.folder / digest)  # for the order after a restart

    async def take(self, piece: ModelPiece, catalogue: Catalogue) -> ModelReceipt:
        """A piece of a model; the last one has it served. `Refused` says why not."""
        if catalogue.offers(piece.model):
            return ModelReceipt(tuple(each.size for each in piece.files), ready=True)
        if (reason := self._refused.get((piece.model, piece.shapes))) is not None:
            raise Refused(reason)
        async with self._one:
            have = await asyncio.to_thread(self._arriving.take, piece)
            if not self._arriving.is_complete(piece, have):
                return ModelReceipt(have)
            if not catalogue.offers(piece.model):
                await self._serve(piece, catalogue)
        return ModelReceipt(have, ready=True)

    async def _serve(self, piece: ModelPiece, catalogue: Catalogue) -> None:
        try:
            model = await asyncio.to_thread(self._checked, piece)
        except CansError as error:
            self._remove_files(piece.model)
            if isinstance(error, Refused):
                self._refused[piece.model, piece.shapes] = str(error)
                while len(self._refused) > _MOST_REFUSED:
                    self._refused.popitem(last=False)
            raise
        while len(self._names) >= self._options.most:
            oldest = next(iter(self._names))
            catalogue.remove(self._forget(oldest))
        catalogue.put(model, given=True)
        self._names[model.digest] = model.name
        _log.info("model taken from a device", extra={"model": model.name})

    def _checked(self, piece: ModelPiece) -> SplitModel:
        path = self._arriving.finish(piece)
        cutting = replace(self._options.cutting, shapes=piece.shapes)
        try_apart(path, cutting, self._options.seconds)
        note = {"name": piece.name, "shapes": piece.shapes}
        self._note(piece.model).write_text(json.dumps(note), encoding="utf-8")
        try:
            return self._loaded(piece.model)
        except CansError as error:
            raise Refused(f"the model cannot be served: {error}") from None

    def _loaded(self, digest: str) -> SplitModel:
        note = json.loads(self._note(digest).read_text(encoding="utf-8"))
        shapes = tuple((name, tuple(shape)) for name, shape in note["shapes"])
        path = self._options.folder / digest / MAIN
        model = self._load(path, replace(self._options.cutting, shapes=shapes))
        if model.digest != digest:
            raise Refused("the file has changed since it was sent")
        # With its digest: no name that a device gives can take the place of another model's.
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", note["name"])[:40] or "model"
        return replace(model, name=f"{plain}-{digest[:8]}")

    def _forget(self, digest: str) -> str:
        name = self._names.pop(digest)
        self._remove_files(digest)
        _log.info("model forgotten, unused for longest", extra={"model": name})
        return name

    def _remove_files(self, digest: str) -> None:
        """Sessions that still run have the weights mapped, and keep them."""
        shutil.rmtree(self._options.folder / digest, ignore_errors=True)
        self._note(digest).unlink(missing_ok=True)

    def _note(self, digest: str) -> Path:
        return self._options.folder / f"{digest}.json"


def _is_digest(name: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", name) is not None
