"""Half precision: three digits in half the bytes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cans.models.codecs.codec import FloatCodec, exactly, register

_LARGEST = 65504.0


@register
class Float16(FloatCodec):
    """Two bytes a number; a tensor with values beyond ±65504 goes as it is."""

    name = "float16"
    kind = 1

    def write(self, array: NDArray[Any]) -> bytes | None:
        if float(np.abs(array).max()) > _LARGEST:
            return None
        return array.astype("<f2").tobytes()

    def read(self, body: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return exactly(body, np.dtype("<f2"), prod(shape)).reshape(shape).astype(dtype)

    def body_size(self, shape: tuple[int, ...]) -> int:
        return 2 * prod(shape)
