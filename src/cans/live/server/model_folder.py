"""A folder of models that is served as it is: new and replaced files are noticed while it runs.

A file is loaded when it has not changed between two looks, so that one that is still being copied
is left alone; one that cannot be served is named once, and what it replaces stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from cans.errors import CansError, InputError
from cans.live.server.catalogue import Catalogue
from cans.live.split import SplitModel

_log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
Stamp = tuple[int, int, int]  # of a file: when it was changed, its size, which file it is
Load = Callable[[Path], SplitModel]


class ModelFolder:
    """Keeps a catalogue in step with the `.onnx` files of a folder."""

    def __init__(self, folder: Path, load: Load) -> None:
        if not folder.is_dir():
            raise InputError(f"--model-dir {folder} is no folder")
        self._folder = folder
        self._load = load
        self._seen: dict[Path, Stamp] = {}  # at the last look
        self._served: dict[Path, tuple[Stamp, str]] = {}  # and under which name
        self._failed: dict[Path, Stamp] = {}

    def first(self) -> list[SplitModel]:
        """The models that are there now; a file that cannot be served is an error at the start."""
        self._seen = self._look()
        models = []
        for path, stamp in self._seen.items():
            models.append(self._load(path))
            self._served[path] = (stamp, models[-1].name)
        if not models:
            raise InputError(f"there is no .onnx file in {self._folder}")
        return models

    async def keep_in_step(self, catalogue: Catalogue) -> None:
        """For as long as the server runs."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.step(catalogue)

    async def step(self, catalogue: Catalogue) -> None:
        """One look at the folder."""
        now = await asyncio.to_thread(self._look)
        for path, stamp in now.items():
            known = self._served.get(path)
            still = self._seen.get(path) == stamp
            if still and self._failed.get(path) != stamp and (known is None or known[0] != stamp):
                await self._take(path, stamp, catalogue)
        for path in [path for path in self._served if path not in now]:
            _, name = self._served.pop(path)
            catalogue.remove(name)
            _log.info("model removed", extra={"model": name, "file": str(path)})
        self._seen = now

    async def _take(self, path: Path, stamp: Stamp, catalogue: Catalogue) -> None:
        try:
            model = await asyncio.to_thread(self._load, path)
        except CansError as error:
            self._failed[path] = stamp
            _log.error("model cannot be served", extra={"file": str(path), "reason": str(error)})
            return
        catalogue.put(model)
        self._served[path] = (stamp, model.name)
        _log.info("model served", extra={"model": model.name, "digest": model.digest[:12]})

    def _look(self) -> dict[Path, Stamp]:
        found = {}
        for path in sorted(self._folder.glob("*.onnx")):
            try:
                status = path.stat()
            except OSError:  # gone between the two
                continue
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return found
