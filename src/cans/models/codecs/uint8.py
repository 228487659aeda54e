"""Eight bits a number, on a scale of its own for every channel."""

from __future__ import annotations

import struct
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cans.models.codecs.codec import Codec, FloatCodec, exactly, register

if TYPE_CHECKING:
    from cans.models.codecs.image import ImageSpec

_LAYOUT = struct.Struct("<BI")  # axis of the channels, their number
_FEW = 32  # elements per channel below which a scale per channel costs more than it gives


@register
class Uint8(FloatCodec):
    """A lowest value and a step per channel, then a byte per number. A declared picture at the
    raw input goes as its pixels."""

    name = "uint8"
    kind = 2

    def at(self, point_index: int, image: ImageSpec | None) -> Codec | None:
        if point_index == 0 and image is not None:
            from cans.models.codecs.image import Pixels

            return Pixels(image)
        return self

    def write(self, array: NDArray[Any]) -> bytes | None:
        axis, channels = _channels(array.shape)
        outer = prod(array.shape[:axis]) if channels > 1 else 1
        found = quantised(array.astype(np.float32, copy=False).reshape(outer, channels, -1))
        if found is None:
            return None
        low, step, codes = found
        pairs = np.stack([low.ravel(), step.ravel()], axis=1).astype("<f4").tobytes()
        return _LAYOUT.pack(axis, channels) + pairs + codes.tobytes()

    def read(self, body: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        axis, channels = _LAYOUT.unpack_from(body)
        if (axis, channels) != _channels(shape):
            raise ValueError("the channels are not those of the tensor")
        start = _LAYOUT.size + 8 * channels
        pairs = exactly(body[_LAYOUT.size : start], np.dtype("<f4"), 2 * channels)
        pairs = pairs.reshape(channels, 2)
        check_scale(pairs[:, 0], pairs[:, 1])
        codes = exactly(body[start:], np.dtype(np.uint8), prod(shape))
        outer = prod(shape[:axis]) if channels > 1 else 1
        values = codes.reshape(outer, channels, -1).astype(np.float32)
        values *= pairs[:, 1].reshape(1, -1, 1)
        values += pairs[:, 0].reshape(1, -1, 1)
        return values.reshape(shape).astype(dtype, copy=False)

    def body_size(self, shape: tuple[int, ...]) -> int:
        return _LAYOUT.size + 8 * _channels(shape)[1] + prod(shape)


def quantised(
    view: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8]] | None:
    """Lowest value and step of each channel (the middle axis of three), and the codes; None when
    a channel spans more than a float32 can hold."""
    low = view.min(axis=(0, 2), keepdims=True)
    with np.errstate(over="ignore"):
        span = view.max(axis=(0, 2), keepdims=True) - low
    if not np.isfinite(span).all():
        return None
    step = np.where(span > 0, span / np.float32(255), np.float32(1)).astype(np.float32)
    step = np.maximum(step, np.float32(np.finfo(np.float32).tiny))
    codes = (view - low) / step
    codes += np.float32(0.5)
    return low, step, np.minimum(codes, np.float32(255)).astype(np.uint8)


def check_scale(low: Any, step: Any) -> None:
    if not (np.isfinite(low).all() and np.isfinite(step).all()):
        raise ValueError("the scale is not a number")


def _channels(shape: tuple[int, ...]) -> tuple[int, int]:
    """Axis of the channels and how many: colours of pictures, features of token rows."""
    axis = 1 if len(shape) >= 4 else len(shape) - 1
    if len(shape) < 3 or prod(shape) < _FEW * shape[axis]:
        return 0, 1
    return axis, shape[axis]
