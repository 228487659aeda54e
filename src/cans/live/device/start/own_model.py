"""The model of a device: the user's own file, or what a server has, cut as that server cuts it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path

from cans import models
from cans.cache import cache_folder
from cans.errors import CansError, InputError, ModelError, Unreachable
from cans.live.device.options import DeviceOptions
from cans.live.device.servers.contact import Contact
from cans.live.fetching import Progress, fetch_model
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import is_built_in, load_model, split
from cans.live.wire.messages import Welcome
from cans.live.wire.state import DeviceState

FirstWelcome = tuple[int, Welcome]
"""Which server, and what it said."""


class OwnModel:
    """The model that the user named, if any, and what is known of it before a server is asked."""

    def __init__(
        self,
        source: str | PathLike[str] | SplitModel | None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        sha256: str | None = None,
    ) -> None:
        self._source = source
        self._own = Cutting(shapes=tuple((shapes or {}).items()))
        self._sha256 = sha256
        self._loaded: models.Model | None = None
        if source is not None and not isinstance(source, SplitModel) and not self.is_the_servers:
            with suppress(ModelError):  # of open dimensions: those the server knows
                self._loaded = load_model(source, self._own)
        if self._loaded is not None:
            _check(self._loaded.digest, sha256, f"{source} is")

    @property
    def is_the_servers(self) -> bool:
        """Whether this device has no file: it takes what a server has, under a name or any."""
        source = self._source
        if source is None:
            return True
        word = isinstance(source, str) and re.fullmatch(r"[^/\\]+", source) is not None
        return word and not (
            is_built_in(str(source)) or str(source).endswith(".onnx") or Path(str(source)).exists()
        )

    @property
    def file(self) -> Path | None:
        """The model file; None: the model is not one's own, or has none."""
        if self._source is None or isinstance(self._source, SplitModel):
            return None
        path = Path(self._source)
        return path if path.is_file() else None

    @property
    def wanted(self) -> str:
        """What to ask the server for: a digest, a name, or whatever it has."""
        if isinstance(self._source, SplitModel):
            return self._source.digest
        if self._loaded is not None:
            return self._loaded.digest
        if self._sha256 is not None and self._source is None:
            return self._sha256
        return str(self._source or "") if self.is_the_servers else Path(str(self._source)).stem

    @property
    def name(self) -> str:
        """Of a model that a server may have in another version; empty: there is none."""
        return "" if self._loaded is None else self._loaded.name

    def cut(
        self,
        contact: Contact,
        welcome: FirstWelcome | None,
        state: DeviceState,
        options: DeviceOptions,
        progress: Progress | None,
    ) -> SplitModel:
        """The model, cut as the server cuts it (or did, when it was last heard of)."""
        if isinstance(self._source, SplitModel):
            return self._source
        told = welcome[1] if welcome else None
        if told is None and state.welcome:
            with suppress(CansError):  # one that this version cannot use
                told = Welcome.from_bytes(state.welcome)
        if self.is_the_servers:
            if told is None:
                raise Unreachable("no server answers, and this device has no model of its own")
            _check(told.table.digest, self._sha256, f"the server's {told.model_name} is")
            return the_servers(contact, welcome[0] if welcome else 0, told, options, progress)
        if told is not None and self._loaded and told.table.digest != self._loaded.digest:
            told = None  # of another model than this file
        cutting = told.cutting if told is not None else self._own
        loaded = self._loaded
        if loaded is None or cutting.shapes:
            assert self._source is not None
            loaded = load_model(self._source, cutting)
        return _cut(loaded, cutting, options)


def the_servers(
    contact: Contact,
    server: int,
    told: Welcome,
    options: DeviceOptions,
    progress: Progress | None = None,
) -> SplitModel:
    """The model that a server told of, fetched from it unless it is in the cache."""
    file: str | Path = told.model_name  # of a built-in model the name is enough
    if told.model_file_sha256:
        link, folder = contact.links[server], cache_folder("models")
        file = fetch_model(link, told.table.digest, told.model_file_sha256, folder, progress)
    elif not is_built_in(told.model_name):
        raise InputError(
            f"the server does not hand out {told.model_name!r} (its log says why); give "
            "this device a copy with --model"
        )
    loaded = replace(load_model(file, told.cutting), name=told.model_name)
    return _cut(loaded, told.cutting, options)


def _cut(loaded: models.Model, cutting: Cutting, options: DeviceOptions) -> SplitModel:
    return split(
        loaded, cutting, local=options.local, runtime=options.runtime,
        max_memory=None if options.max_memory_mb is None else int(options.max_memory_mb * 1e6),
    )  # fmt: skip


def _check(digest: str, wanted: str | None, what: str) -> None:
    if wanted is not None and digest != wanted:
        raise InputError(f"{what} {digest}, not --model-sha256 {wanted}")
