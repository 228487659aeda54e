"""How a model gets to a node of a cluster: its files travel once, and all replicas map them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cans.cache import cache_folder
from cans.errors import ModelError
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from cans.models import RuntimeOptions


class Source(Protocol):
    """Makes the model that a replica serves; travels to it by pickle."""

    def load(self) -> SplitModel: ...


@dataclass(frozen=True)
class NamedModel:
    """A model that every node has by name."""

    name: str
    digest: str
    cutting: Cutting
    runtime: RuntimeOptions | None

    def load(self) -> SplitModel:
        return _cut(self.name, self)


@dataclass(frozen=True)
class Files:
    """A model by the content of its files; they are references into the cluster's store."""

    name: str
    digest: str
    cutting: Cutting
    runtime: RuntimeOptions | None
    files: tuple[tuple[str, int, Any], ...]  # relative name, size, reference

    def load(self) -> SplitModel:
        import ray

        folder = cache_folder("cluster") / self.digest
        for name, size, reference in self.files:
            file = folder / name
            if file.exists() and file.stat().st_size == size:
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
            unfinished.write_bytes(ray.get(reference))
            os.replace(unfinished, file)
        main = folder / self.files[0][0]
        return _cut(main, self)


def _cut(file: str | Path, source: NamedModel | Files) -> SplitModel:
    cutting = source.cutting
    model = split(load_model(file, cutting), cutting, runtime=source.runtime)
    if model.digest != source.digest:
        raise ModelError(f"this node has another {model.name}; install the same version there")
    return model


def source_of(
    model: SplitModel, put: Callable[[Any], Any], runtime: RuntimeOptions | None
) -> Source:
    """Where replicas get a model that this server has; `put` takes bytes into the cluster."""
    if not model.files:
        return NamedModel(model.name, model.digest, model.cutting, runtime)
    import numpy as np

    return Files(
        model.name,
        model.digest,
        model.cutting,
        runtime,
        tuple(
            (each.name, each.size, put(np.fromfile(each.path, np.uint8))) for each in model.files
        ),
    )
