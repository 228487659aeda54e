"""Weights of the built-in networks: made once from the seed, then mapped from a cache folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from cans.cache import cache_folder
from cans.models.builtin import BuiltIn
from cans.models.builtin.builder import Recipe
from cans.models.onnx.weights import Region, Weights

_ALIGN = 64  # bytes; vector instructions read aligned data faster


class BuiltInWeights(Weights):
    """The weights file is written when a weight is first asked for, never for `inspect`."""

    def __init__(self, built: BuiltIn) -> None:
        super().__init__({})
        self._built = built

    def __contains__(self, name: object) -> bool:
        return name in self._names  # asked often, and must not write the file

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(each.name for each in self._built.recipes)

    def region(self, name: str) -> Region:
        return self._regions[name]

    @cached_property
    def _regions(self) -> Mapping[str, Region]:
        path = cache_folder() / f"{self._built.name}-{self._built.digest[:16]}.weights"
        offsets, total = _layout(self._built.recipes)
        if not path.exists() or path.stat().st_size != total:
            _write(path, self._built, offsets, total)
        return {
            each.name: Region(path, offset, 4 * each.elements)
            for each, offset in zip(self._built.recipes, offsets, strict=True)
        }


def values(recipe: Recipe, seed: int) -> NDArray[np.float32]:
    """Uniform in ±bound, from raw generator bits: NumPy promises those never change."""
    stream = np.random.PCG64(np.random.SeedSequence([seed, crc32(recipe.name.encode())]))
    raw = np.asarray(stream.random_raw(-(-recipe.elements // 4)), "<u8")
    steps = raw.view("<u2")[: recipe.elements].astype(np.float32)
    steps -= np.float32(32767.5)
    steps *= np.float32(recipe.bound / 32768)
    return steps.reshape(recipe.shape)


def _layout(recipes: tuple[Recipe, ...]) -> tuple[list[int], int]:
    offsets, end = [], 0
    for each in recipes:
        offsets.append(end)
        end += -(-4 * each.elements // _ALIGN) * _ALIGN
    return offsets, end


def _write(path: Path, built: BuiltIn, offsets: list[int], total: int) -> None:
    # Written beside and renamed: a killed process or a second one never leaves half a file.
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            for recipe, offset in zip(built.recipes, offsets, strict=True):
                file.seek(offset)
                file.write(values(recipe, built.seed).data)
            file.truncate(total)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def save(built: BuiltIn, path: Path) -> None:
    """Write a built-in network as an ordinary ONNX file, weights inside."""
    model = ModelProto()
    model.CopyFrom(built.proto)
    recipes = {each.name: each for each in built.recipes}
    for tensor in model.graph.initializer:
        if tensor.name in recipes:
            tensor.ClearField("data_location")
            tensor.raw_data = values(recipes[tensor.name], built.seed).tobytes()
    path.write_bytes(model.SerializeToString())
