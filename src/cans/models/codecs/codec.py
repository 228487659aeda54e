"""How a tensor is written for the wire. Every payload says what it is, so one function reads all.

A payload starts with two magic bytes, the kind, and a byte reserved for later. Whoever decodes
knows shape and type already; bytes that do not fit them raise `PayloadError` before anything of
their size is allocated.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from cans.errors import InputError, RunError, unknown_name
from cans.models.codecs.image import (
    ImageSpec,
    channel_axis,
    from_jpeg,
    from_pixels,
    to_jpeg,
    to_pixels,
)

_MAGIC = b"CT"
_HEADER = struct.Struct("<2sBB")
_AFFINE = struct.Struct("<BI")  # axis of the channels, their number
_RAW, _HALF, _CHANNELS, _ZSTD, _PIXELS, _JPEG = range(6)
_FEW = 32  # elements per channel below which a scale per channel costs more than it gives
_ZSTD_SHARE = 0.6  # of one byte per element, typical of activations (MEASURED.md: 9-24 % of 4)
_JPEG_SHARE = 0.11  # of one byte per colour value, typical of quality 90
_HALF_LIMIT = 65504.0


class PayloadError(RunError):
    """The bytes received are not a tensor of the expected shape and type."""


@dataclass(frozen=True)
class Codec:
    """One way to write a tensor. Tensors it cannot serve (integers, not finite) go as they are."""

    name: str
    lossy: bool
    exact_size: bool  # is `size` known, or a prediction?
    image: ImageSpec | None = None

    def encode(self, array: NDArray[Any]) -> bytes:
        kind, body = self._encode(np.ascontiguousarray(array).reshape(array.shape))
        return _HEADER.pack(_MAGIC, kind, 0) + body

    def decode(
        self, payload: bytes | memoryview, shape: tuple[int, ...], dtype: str
    ) -> NDArray[Any]:
        return decode(payload, shape, dtype)

    def size(self, shape: tuple[int, ...], dtype: str = "float32") -> int:
        """Bytes on the wire, exactly or as predicted."""
        count = prod(shape)
        plain = _HEADER.size + count * np.dtype(dtype).itemsize
        if self.name == "float32" or not np.issubdtype(np.dtype(dtype), np.floating):
            return plain
        if self.name == "float16":
            return _HEADER.size + 2 * count
        if self.name == "uint8" and self.image is None:
            return _HEADER.size + _AFFINE.size + 8 * _channels(shape)[1] + count
        if self.name == "uint8-zstd":
            return _HEADER.size + 8 + int(_ZSTD_SHARE * count)
        spec = _spec_bytes(self.image or ImageSpec((0.0,), (1.0,)))
        if self.name == "uint8":
            return _HEADER.size + len(spec) + count
        return _HEADER.size + len(spec) + int(_JPEG_SHARE * count) + 600

    def _encode(self, array: NDArray[Any]) -> tuple[int, bytes]:
        raw = _RAW, array.tobytes()
        if self.name == "float32" or not np.issubdtype(array.dtype, np.floating) or not array.size:
            return raw
        if not np.isfinite(array).all():
            return raw
        if self.image is not None:
            pixels = to_pixels(array, self.image)
            if self.name == "uint8":
                return _PIXELS, _spec_bytes(self.image) + pixels.tobytes()
            return _JPEG, _spec_bytes(self.image) + to_jpeg(pixels)
        if self.name == "float16":
            if float(np.abs(array).max()) > _HALF_LIMIT:
                return raw
            return _HALF, array.astype("<f2").tobytes()
        return _encode_affine(array, self.name == "uint8-zstd") or raw


CODECS = {
    "float32": Codec("float32", lossy=False, exact_size=True),
    "float16": Codec("float16", lossy=True, exact_size=True),
    "uint8": Codec("uint8", lossy=True, exact_size=True),
    "uint8-zstd": Codec("uint8-zstd", lossy=True, exact_size=False),
}
_IMAGE_CODECS = {"uint8": True, "jpeg": False}  # name -> is the size known


def get_codec(name: str, image: ImageSpec | None = None) -> Codec:
    """The codec of this name; with `image`, the one that sends a normalised picture as pixels."""
    if image is not None and name in _IMAGE_CODECS:
        return Codec(name, lossy=True, exact_size=_IMAGE_CODECS[name], image=image)
    if name == "jpeg":
        raise InputError("the codec jpeg sends pictures at point 0 only; declare --image MEAN/STD")
    if name not in CODECS:
        raise unknown_name("codec", name, [*CODECS, "jpeg"])
    return CODECS[name]


def codec_at(name: str, point_index: int, image: ImageSpec | None) -> Codec | None:
    """The codec to use at a point; None where it does not apply (jpeg on an activation)."""
    if point_index == 0:
        return get_codec(name, image)
    return None if name == "jpeg" else get_codec(name)


def decode(payload: bytes | memoryview, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Read a payload of any codec; `PayloadError` unless it is exactly such a tensor."""
    try:
        magic, kind, _ = _HEADER.unpack_from(payload)
        if magic != _MAGIC:
            raise ValueError("no tensor payload")
        body = memoryview(payload)[_HEADER.size :]
        return _decode(kind, body, tuple(shape), np.dtype(dtype))
    except (ValueError, struct.error, zstandard.ZstdError, OSError, SyntaxError, EOFError) as error:
        raise PayloadError(f"a received tensor cannot be read: {error}") from None


def _decode(
    kind: int, body: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    count = prod(shape)
    if kind == _RAW:
        return _exact(body, dtype, count).reshape(shape).copy()
    if not np.issubdtype(dtype, np.floating):
        raise ValueError("this codec does not carry integers")
    if kind == _HALF:
        return _exact(body, np.dtype("<f2"), count).reshape(shape).astype(dtype)
    if kind == _CHANNELS:
        return _decode_channels(body, shape, dtype)
    if kind == _ZSTD:
        low, step = _exact(body[:8], np.dtype("<f4"), 2)
        _check_affine(low, step)
        frame = bytes(body[8:])
        # The frame names its own size; it must be ours before any of it is allocated.
        if zstandard.frame_content_size(frame) != count:
            raise ValueError("the compressed size is not that of the tensor")
        data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=count)
        codes = _exact(memoryview(data), np.dtype(np.uint8), count)
        values: NDArray[Any] = codes.astype(np.float32) * step + low
        return values.reshape(shape).astype(dtype)
    if kind in (_PIXELS, _JPEG):
        spec, rest = _read_spec(body)
        axis = channel_axis(shape)
        if axis is None or len(spec.mean) not in (1, shape[axis]):
            raise ValueError("the tensor is no picture")
        if kind == _PIXELS:
            pixels = _exact(rest, np.dtype(np.uint8), count).reshape(shape)
        else:
            pixels = from_jpeg(bytes(rest), shape)
        return from_pixels(pixels, spec, dtype.name)
    raise ValueError(f"unknown kind {kind}")


def _exact(body: memoryview, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    if len(body) != count * dtype.itemsize:
        raise ValueError(f"{count * dtype.itemsize} bytes expected, {len(body)} received")
    return np.frombuffer(body, dtype)


def _channels(shape: tuple[int, ...]) -> tuple[int, int]:
    """Axis of the channels and how many: colours of pictures, features of token rows."""
    axis = 1 if len(shape) >= 4 else len(shape) - 1
    if len(shape) < 3 or prod(shape) < _FEW * shape[axis]:
        return 0, 1
    return axis, shape[axis]


def _encode_affine(array: NDArray[Any], compress: bool) -> tuple[int, bytes] | None:
    axis, channels = (0, 1) if compress else _channels(array.shape)
    outer = prod(array.shape[:axis]) if channels > 1 else 1
    view = array.astype(np.float32, copy=False).reshape(outer, channels, -1)
    low = view.min(axis=(0, 2), keepdims=True)
    with np.errstate(over="ignore"):
        span = view.max(axis=(0, 2), keepdims=True) - low
    if not np.isfinite(span).all():
        return None
    step = np.where(span > 0, span / np.float32(255), np.float32(1)).astype(np.float32)
    step = np.maximum(step, np.float32(np.finfo(np.float32).tiny))
    codes = (view - low) / step
    codes += np.float32(0.5)
    data = np.minimum(codes, np.float32(255)).astype(np.uint8).tobytes()
    if compress:
        frame = zstandard.ZstdCompressor(level=1).compress(data)
        return _ZSTD, struct.pack("<ff", low.item(), step.item()) + frame
    pairs = np.stack([low.ravel(), step.ravel()], axis=1).astype("<f4").tobytes()
    return _CHANNELS, _AFFINE.pack(axis, channels) + pairs + data


def _decode_channels(
    body: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    axis, channels = _AFFINE.unpack_from(body)
    if (axis, channels) != _channels(shape):
        raise ValueError("the channels are not those of the tensor")
    start = _AFFINE.size + 8 * channels
    pairs = _exact(body[_AFFINE.size : start], np.dtype("<f4"), 2 * channels).reshape(channels, 2)
    _check_affine(pairs[:, 0], pairs[:, 1])
    codes = _exact(body[start:], np.dtype(np.uint8), prod(shape))
    outer = prod(shape[:axis]) if channels > 1 else 1
    values = codes.reshape(outer, channels, -1).astype(np.float32)
    values *= pairs[:, 1].reshape(1, -1, 1)
    values += pairs[:, 0].reshape(1, -1, 1)
    return values.reshape(shape).astype(dtype, copy=False)


def _check_affine(low: Any, step: Any) -> None:
    if not (np.isfinite(low).all() and np.isfinite(step).all()):
        raise ValueError("the scale is not a number")


def _spec_bytes(spec: ImageSpec) -> bytes:
    count = len(spec.mean)
    return struct.pack(f"<B{2 * count}f", count, *spec.mean, *spec.std)


def _read_spec(body: memoryview) -> tuple[ImageSpec, memoryview]:
    (count,) = struct.unpack_from("<B", body)
    if count not in (1, 3):
        raise ValueError("a picture has one or three channels")
    numbers = struct.unpack_from(f"<{2 * count}f", body, 1)
    try:
        spec = ImageSpec(numbers[:count], numbers[count:])
    except InputError as error:
        raise ValueError(str(error)) from None
    return spec, body[1 + 8 * count :]
