"""Codecs as they are used on this wire: a tensor's own bytes for `float32`, without a copy on
either side, and the models layer's codecs for all others."""

from __future__ import annotations

from math import prod

import numpy as np

from cans import models
from cans.errors import RemoteProtocolError, RunError
from cans.live.split import Array, Codec


class Raw:
    """Any tensor as it is. Bytes that are not exactly the tensor are refused."""

    name = "float32"

    def encode(self, array: Array) -> memoryview:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    def decode(self, payload: memoryview, shape: tuple[int, ...], dtype: str) -> Array:
        kind = np.dtype(dtype)
        wanted = prod(shape) * kind.itemsize
        if payload.nbytes != wanted:
            raise RemoteProtocolError(f"{payload.nbytes} bytes for a tensor of {wanted}")
        array = np.frombuffer(payload, kind).reshape(shape)
        return array if array.flags.aligned else array.copy()


RAW: Codec = Raw()


class Written:
    """A codec of the models layer; bytes it cannot read are the other side's mistake."""

    def __init__(self, codec: models.Codec) -> None:
        self._codec = codec
        self.name: str = codec.name

    def encode(self, array: Array) -> bytes:
        return self._codec.encode(array)

    def decode(self, payload: memoryview, shape: tuple[int, ...], dtype: str) -> Array:
        try:
            return self._codec.decode(payload, shape, dtype)
        except RunError as error:
            raise RemoteProtocolError(str(error)) from None
