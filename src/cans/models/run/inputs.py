"""What a model is fed: shapes from the command line, arrays from a file, or made-up values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cans.errors import InputError


class Declared(Protocol):
    """What must be known of a tensor to make one."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


def parse_shapes(given: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`--shape` as it is written; a name contains whatever precedes the last `=`.

    >>> parse_shapes(["x=1x3x224x224", "scale="])
    {'x': (1, 3, 224, 224), 'scale': ()}
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in given:
        name, _, dims = text.rpartition("=")
        numbers = dims.lower().split("x") if dims else []
        valid = all(each.isascii() and each.isdigit() and int(each) > 0 for each in numbers)
        if not name or not valid:
            raise InputError(f"--shape must be NAME=1x3x224x224, got {text!r}")
        found[name] = tuple(map(int, numbers))
    return found


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file, which must have these names; or the one of an .npy file, which
    is the first of them."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            found = {names[0]: loaded}
        else:
            with loaded as file:
                found = {name: file[name] for name in file.files}
    except Exception as error:  # a damaged file: zipfile, zlib and NumPy each have their own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read inputs from {path}: {reason}") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            f"{path} has no input {missing[0]!r}; it has: {', '.join(found) or 'nothing'}"
        )
    return found


def random_inputs(
    tensors: Iterable[Declared], generator: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Harmless values: normal numbers, or zeros and ones (token ids, masks) for integers."""
    values: dict[str, NDArray[Any]] = {}
    for each in tensors:
        if np.issubdtype(np.dtype(each.dtype), np.floating):
            values[each.name] = generator.standard_normal(each.shape).astype(each.dtype)
        else:
            values[each.name] = generator.integers(0, 2, each.shape).astype(each.dtype)
    return values
