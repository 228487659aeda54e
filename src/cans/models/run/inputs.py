"""What a model is fed: shapes from the command line, arrays from a file, or made-up values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cans.errors import InputError
from cans.models.codecs.image import ImageSpec, channel_axis, from_pixels

if TYPE_CHECKING:
    import onnx

_USUAL_IMAGE = ImageSpec((0.45,), (0.225,))
_SOUND = 400  # samples; shorter rows are rather features
_COPYING = frozenset({"Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"})


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
        valid = all(each.isascii() and each.isdigit() and 0 < int(each) < 2**31 for each in numbers)
        if not name or not valid:
            raise InputError(f"--shape must be NAME=1x3x224x224, got {text!r}")
        found[name] = tuple(map(int, numbers))
    return found


def parse_ranges(
    given: Iterable[str],
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Shapes of which some dimensions may vary: the largest, and the smallest of each.

    >>> parse_ranges(["x=1x3x48x32..640"])
    ({'x': (1, 3, 48, 640)}, {'x': (1, 3, 48, 32)})
    """
    texts = list(given)
    highest = parse_shapes(re.sub(r"\d+\.\.(\d+)", r"\1", text) for text in texts)
    lowest = parse_shapes(re.sub(r"(\d+)\.\.\d+", r"\1", text) for text in texts)
    for name, shape in highest.items():
        if any(low > high for low, high in zip(lowest[name], shape, strict=True)):
            raise InputError(f"--shape {name}: a range goes from the smaller to the larger size")
    return highest, lowest


_MAGIC = (b"\x93NUMPY", b"PK")  # .npy, .npz


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of these names in an .npz file, which may have others too; or the one of an .npy
    file, which is the first of them."""
    try:
        with path.open("rb") as file:
            if not file.read(len(_MAGIC[0])).startswith(_MAGIC):
                raise ValueError("it is neither an .npz nor an .npy file")
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                found = {names[0]: loaded}
            else:
                found = {name: loaded[name] for name in loaded.files}
    except Exception as error:  # a damaged file: zipfile, zlib and NumPy each have their own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read inputs from {path}: {reason}") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            f"{path} has no input {missing[0]!r}; it has: {', '.join(found) or 'nothing'}"
        )
    return {name: found[name] for name in names}


def random_inputs(
    tensors: Iterable[Declared],
    generator: np.random.Generator,
    limits: Mapping[str, int] | None = None,
    image: ImageSpec | None = None,
) -> dict[str, NDArray[Any]]:
    """Made-up values, by what names, types and shapes say: pictures, sound, masks, tokens below
    `limits`; else normal numbers, or zeros and ones. `image`: how the first input is normalised.
    """
    declared = list(tensors)
    longest = max((size for each in declared for size in each.shape), default=1)
    values: dict[str, NDArray[Any]] = {}
    for i, each in enumerate(declared):
        kind = np.dtype(each.dtype)
        if i == 0 and image is not None:
            values[each.name] = from_pixels(_picture(each, generator), image, each.dtype)
        elif np.issubdtype(kind, np.floating):
            values[each.name] = _real(each, generator).astype(kind)
        else:
            limit = (limits or {}).get(each.name, 2)
            values[each.name] = _whole(each, generator, limit, longest).astype(kind)
    return values


def _real(each: Declared, generator: np.random.Generator) -> NDArray[Any]:
    name, shape = each.name.lower(), each.shape
    if "mask" in name or (prod(shape) <= 4 and re.search("scale|ratio|size|shape", name)):
        return np.ones(shape)
    if channel_axis(shape) is not None:
        return from_pixels(_picture(each, generator), _USUAL_IMAGE, "float32")
    if len(shape) <= 3 and shape and shape[-1] >= _SOUND and prod(shape[:-1]) <= 2:
        return _sound(shape, generator)
    return generator.standard_normal(shape)


def _whole(
    each: Declared, generator: np.random.Generator, limit: int, longest: int
) -> NDArray[Any]:
    name, shape = each.name.lower(), each.shape
    if "mask" in name and shape:
        used = int(generator.integers(max(1, shape[-1] // 2), shape[-1] + 1))
        return np.broadcast_to(np.arange(shape[-1]) < used, shape)
    if "position" in name and shape:
        return np.broadcast_to(np.arange(shape[-1]), shape)
    if re.search("type_id|segment", name):
        return np.zeros(shape)
    if re.search(r"^sr$|sample_?rate", name):
        return np.full(shape, 16000)
    if "len" in name and prod(shape) <= 8:
        return np.full(shape, longest)
    if each.dtype == "uint8" and channel_axis(shape) is not None:
        return _picture(each, generator)
    return generator.integers(0, max(limit, 1), shape)


def _picture(each: Declared, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Soft blobs with a little grain, as 8-bit pixels: JPEG is not made for white noise."""
    if channel_axis(each.shape) is None:
        raise InputError(f"input {each.name!r} has the shape {list(each.shape)}: no picture")
    pixels = np.full(each.shape, 128.0)
    for axis in range(1, 4):
        line = np.interp(
            np.linspace(0, 5, each.shape[axis]), range(6), generator.uniform(-60, 60, 6)
        )
        pixels += line.reshape([-1 if i == axis else 1 for i in range(4)])
    pixels += generator.normal(0, 4, each.shape)
    whole: NDArray[np.uint8] = np.clip(pixels, 0, 255).astype(np.uint8)
    return whole


def _sound(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[Any]:
    """A few tones that come and go, and noise: neither silent nor saturated."""
    times = np.arange(shape[-1]) / 16000
    tones = generator.uniform(100, 2000, 5)[:, None]
    wave = np.sin(2 * np.pi * tones * times).sum(axis=0) * np.sin(2 * np.pi * 3 * times)
    return 0.1 * np.broadcast_to(wave, shape) + generator.normal(0, 0.01, shape)


def index_limits(graph: onnx.GraphProto) -> dict[str, int]:
    """How many rows the table has that an integer input looks up; casts and reshapes between."""
    rows = {each.name: each.dims[0] for each in graph.initializer if each.dims}
    names = {each.name: each.name for each in graph.input}  # what a tensor is a copy of
    found: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _COPYING and node.input and node.input[0] in names:
            names[node.output[0]] = names[node.input[0]]
        if node.op_type != "Gather" or len(node.input) < 2 or node.input[1] not in names:
            continue
        axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
        if axis == 0 and node.input[0] in rows:
            source = names[node.input[1]]
            found[source] = min(found.get(source, 1 << 30), rows[node.input[0]])
    return found
