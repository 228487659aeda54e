"""Eight bits a number on one scale, then compressed: small where many numbers are zero."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from cans.models.codecs.codec import FloatCodec, exactly, register
from cans.models.codecs.uint8 import check_scale, quantised

_SCALE = struct.Struct("<ff")  # lowest value, step
_SHARE = 0.6  # of one byte per element, typical of activations


@register
class Uint8Zstd(FloatCodec):
    """Good after ReLU. How small it gets depends on the values, so its size is a prediction."""

    name = "uint8-zstd"
    kind = 3
    exact_size = False

    def write(self, array: NDArray[Any]) -> bytes | None:
        found = quantised(array.astype(np.float32, copy=False).reshape(1, 1, -1))
        if found is None:
            return None
        low, step, codes = found
        frame = zstandard.ZstdCompressor(level=1).compress(codes.tobytes())
        return _SCALE.pack(low.item(), step.item()) + frame

    def read(self, body: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        count = prod(shape)
        low, step = exactly(body[: _SCALE.size], np.dtype("<f4"), 2)
        check_scale(low, step)
        frame = bytes(body[_SCALE.size :])
        try:
            # The frame names its own size; it must be ours before any of it is allocated.
            if zstandard.frame_content_size(frame) != count:
                raise ValueError("the compressed size is not that of the tensor")
            data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=count)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        codes = exactly(memoryview(data), np.dtype(np.uint8), count)
        values: NDArray[Any] = codes.astype(np.float32) * step + low
        return values.reshape(shape).astype(dtype)

    def body_size(self, shape: tuple[int, ...]) -> int:
        return _SCALE.size + int(_SHARE * prod(shape))
