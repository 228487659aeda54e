"""The tensor as it is, whatever its type: its own bytes, without a copy on either side."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cans.models.codecs.codec import Codec, PayloadError, exactly, register


@register
class Float32(Codec):
    """No change and no header; the name is that of the most usual type."""

    name = "float32"
    lossy = False

    def encode(self, array: NDArray[Any]) -> memoryview:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    def decode(
        self, payload: bytes | memoryview, shape: tuple[int, ...], dtype: str
    ) -> NDArray[Any]:
        try:
            array = exactly(memoryview(payload), np.dtype(dtype), prod(shape)).reshape(shape)
        except ValueError as error:
            raise PayloadError(f"a received tensor cannot be read: {error}") from None
        return array if array.flags.aligned else array.copy()

    def size(self, shape: tuple[int, ...], dtype: str = "float32") -> int:
        return prod(shape) * np.dtype(dtype).itemsize
