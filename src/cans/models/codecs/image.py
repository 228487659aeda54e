"""Inputs that are normalised pictures: point 0 may send them as bytes or as JPEG."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cans.errors import InputError
from cans.models.codecs.codec import Codec, FloatCodec, PayloadError, exactly, register

_JPEG_SHARE = 0.11  # of one byte per colour value, typical of quality 90
_START_OF_SCAN = b"\xff\xda"  # never in the data of a scan, where 0xff is followed by 0 or 0xd0-d7
_MOST_SCANS = 16  # what we write has one, a progressive picture about ten
_JPEG_TABLES = 600  # bytes that every JPEG begins with


@dataclass(frozen=True)
class ImageSpec:
    """x = (pixel / 255 - mean) / std, per channel; one number stands for all channels."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise InputError("--image needs one or three numbers on each side of the slash")
        if not all(np.isfinite(self.mean)) or not all(0 < each < 1e6 for each in self.std):
            raise InputError("--image needs finite means and positive deviations")

    @classmethod
    def parse(cls, text: str) -> ImageSpec:
        """
        >>> ImageSpec.parse("0.5/0.25")
        ImageSpec(mean=(0.5,), std=(0.25,))
        """
        try:
            mean, std = (tuple(map(float, side.split(","))) for side in text.split("/"))
        except ValueError:
            example = "0.485,0.456,0.406/0.229,0.224,0.225"
            raise InputError(f"--image must be MEAN/STD, e.g. {example}; got {text!r}") from None
        return cls(mean, std)


class Pixels(FloatCodec):
    """The picture's own bytes, and how they were normalised. `uint8` takes this form at point 0."""

    name = "uint8"
    kind = 4

    def __init__(self, image: ImageSpec | None = None) -> None:
        self._image = image or ImageSpec((0.0,), (1.0,))

    def write(self, array: NDArray[Any]) -> bytes | None:
        return _spec_bytes(self._image) + self.compressed(to_pixels(array, self._image))

    def read(self, body: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        spec, rest = _read_spec(body)
        axis = channel_axis(shape)
        if axis is None or len(spec.mean) not in (1, shape[axis]):
            raise ValueError("the tensor is no picture")
        return from_pixels(self.uncompressed(rest, shape), spec, dtype.name)

    def body_size(self, shape: tuple[int, ...]) -> int:
        return len(_spec_bytes(self._image)) + self.compressed_size(prod(shape))

    def compressed(self, pixels: NDArray[np.uint8]) -> bytes:
        return pixels.tobytes()

    def uncompressed(self, data: memoryview, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        return exactly(data, np.dtype(np.uint8), prod(shape)).reshape(shape)

    def compressed_size(self, count: int) -> int:
        return count


@register
class Jpeg(Pixels):
    """A declared picture as JPEG, at point 0 only."""

    name = "jpeg"
    kind = 5
    exact_size = False

    def at(self, point_index: int, image: ImageSpec | None) -> Codec | None:
        if point_index > 0:
            return None
        if image is None:
            raise InputError(
                "the codec jpeg sends pictures at point 0 only; declare --image MEAN/STD"
            )
        return Jpeg(image)

    def check(self, payload: bytes | memoryview, shape: tuple[int, ...], dtype: str) -> None:
        """A picture is written in few scans; each further one is as much work as the whole."""
        scans = bytes(payload).count(_START_OF_SCAN)
        if scans > _MOST_SCANS:
            raise PayloadError(f"a JPEG of {scans} scans; at most {_MOST_SCANS}")

    def compressed(self, pixels: NDArray[np.uint8]) -> bytes:
        return to_jpeg(pixels)

    def uncompressed(self, data: memoryview, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        return from_jpeg(bytes(data), shape)

    def compressed_size(self, count: int) -> int:
        return int(_JPEG_SHARE * count) + _JPEG_TABLES


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Where the colours are, when the shape is that of pictures at all."""
    if len(shape) == 4 and shape[1] in (1, 3):
        return 1
    return 3 if len(shape) == 4 and shape[3] in (1, 3) else None


def to_pixels(array: NDArray[Any], spec: ImageSpec) -> NDArray[np.uint8]:
    mean, std = _broadcast(array.shape, spec)
    pixels = np.rint((array.astype(np.float32) * std + mean) * np.float32(255))
    whole: NDArray[np.uint8] = np.clip(pixels, 0, 255).astype(np.uint8)
    return whole


def from_pixels(pixels: NDArray[np.uint8], spec: ImageSpec, dtype: str) -> NDArray[Any]:
    mean, std = _broadcast(pixels.shape, spec)
    return ((pixels.astype(np.float32) / np.float32(255) - mean) / std).astype(dtype)


def to_jpeg(pixels: NDArray[np.uint8], quality: int = 90) -> bytes:
    """All pictures of the batch, one below the other, as one JPEG."""
    image = _pillow()
    rows = np.moveaxis(pixels, 1, 3) if channel_axis(pixels.shape) == 1 else pixels
    tall = rows.reshape(-1, rows.shape[2], rows.shape[3])
    out = BytesIO()
    image.fromarray(tall.squeeze(2) if tall.shape[2] == 1 else tall).save(
        out, "JPEG", quality=quality
    )
    return out.getvalue()


def from_jpeg(data: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Decode; the size in the header is compared before any pixel is allocated."""
    image = _pillow()
    first = channel_axis(shape) == 1
    batch, channels = shape[0], shape[1] if first else shape[3]
    height, width = (shape[2], shape[3]) if first else (shape[1], shape[2])
    with image.open(BytesIO(data), formats=["JPEG"]) as picture:
        if picture.size != (width, batch * height):
            raise ValueError("the JPEG is of another size")
        tall = np.asarray(picture.convert("RGB" if channels == 3 else "L"), np.uint8)
    rows = tall.reshape(batch, height, width, channels)
    return np.ascontiguousarray(np.moveaxis(rows, 3, 1) if first else rows)


def _broadcast(
    shape: tuple[int, ...], spec: ImageSpec
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    axis = channel_axis(shape)
    if axis is None:
        raise InputError(f"a tensor of shape {list(shape)} is no picture; leave out --image")
    target = [1] * len(shape)
    target[axis] = -1
    mean = np.array(spec.mean, np.float32).reshape(target)
    std = np.array(spec.std, np.float32).reshape(target)
    if mean.size not in (1, shape[axis]):
        raise InputError(f"--image has {mean.size} channels, the input has {shape[axis]}")
    return mean, std


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise InputError("the codec jpeg needs Pillow: pip install 'cans-edge[image]'") from None
    return Image


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
