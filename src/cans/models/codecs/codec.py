"""What a codec is, and the registry: how a tensor is written for the wire.

Every module of this folder is imported when a codec is first asked for; a class marked `@register`
is then a codec by its name, in `verify`, `plan`, `serve` and on devices. A module elsewhere
registers its classes in the same way. Who decodes knows the codec, the shape and the type already;
bytes that do not fit them raise `PayloadError` before anything of their size is allocated.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from math import prod
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from cans.errors import RemoteProtocolError, unknown_name

if TYPE_CHECKING:
    from cans.models.codecs.image import ImageSpec

_MAGIC = b"CT"
HEADER = struct.Struct("<2sBB")  # magic, kind, a byte reserved for later
_AS_IS = 0  # the kind of a tensor's own bytes; every codec has another one


class PayloadError(RemoteProtocolError):
    """The bytes received are not a tensor of the expected shape and type."""


class Codec(ABC):
    """One way to write a tensor."""

    name: ClassVar[str]
    lossy: ClassVar[bool] = True
    exact_size: ClassVar[bool] = True  # is `size` known, or a prediction?

    @abstractmethod
    def encode(self, array: NDArray[Any]) -> bytes | memoryview: ...

    @abstractmethod
    def decode(
        self, payload: bytes | memoryview, shape: tuple[int, ...], dtype: str
    ) -> NDArray[Any]:
        """The tensor; `PayloadError` unless the bytes are exactly such a tensor."""

    def check(self, payload: bytes | memoryview, shape: tuple[int, ...], dtype: str) -> None:
        """`PayloadError` for bytes that would cost more to decode than any this codec writes.
        Cheap: a server asks before it takes a worker."""
        if self.exact_size and len(payload) > max(self.size(shape, dtype), _as_is(shape, dtype)):
            raise PayloadError(
                f"{len(payload)} bytes are no {self.name} of shape {list(shape)[:8]}"
            )

    @abstractmethod
    def size(self, shape: tuple[int, ...], dtype: str = "float32") -> int:
        """Bytes on the wire, exactly or as predicted."""

    def at(self, point_index: int, image: ImageSpec | None) -> Codec | None:
        """The form to use at a point; None where it does not apply. `image`: how the input was
        normalised, where it is a picture."""
        return self


class FloatCodec(Codec):
    """A codec of floating-point numbers. What it cannot hold (integers, infinities) goes as it is:
    a header says which of the two a payload is."""

    kind: ClassVar[int]

    @abstractmethod
    def write(self, array: NDArray[Any]) -> bytes | None:
        """The body of a finite, non-empty array; None: its values do not fit."""

    @abstractmethod
    def read(
        self, body: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> NDArray[Any]: ...

    @abstractmethod
    def body_size(self, shape: tuple[int, ...]) -> int: ...

    def encode(self, array: NDArray[Any]) -> bytes:
        whole = np.ascontiguousarray(array).reshape(array.shape)
        fits = _is_float(whole.dtype) and whole.size > 0 and bool(np.isfinite(whole).all())
        body = self.write(whole) if fits else None
        if body is None:
            return HEADER.pack(_MAGIC, _AS_IS, 0) + whole.tobytes()
        return HEADER.pack(_MAGIC, self.kind, 0) + body

    def decode(
        self, payload: bytes | memoryview, shape: tuple[int, ...], dtype: str
    ) -> NDArray[Any]:
        wanted = np.dtype(dtype)
        try:
            magic, kind, _ = HEADER.unpack_from(payload)
            if magic != _MAGIC or kind not in (_AS_IS, self.kind):
                raise ValueError(f"this is not codec {self.name}")
            body = memoryview(payload)[HEADER.size :]
            if kind == _AS_IS:
                return exactly(body, wanted, prod(shape)).reshape(shape).copy()
            if not _is_float(wanted):
                raise ValueError("this codec does not carry integers")
            return self.read(body, shape, wanted)
        except (ValueError, struct.error, OSError, SyntaxError, EOFError) as error:
            raise PayloadError(f"a received tensor cannot be read: {error}") from None

    def size(self, shape: tuple[int, ...], dtype: str = "float32") -> int:
        kind = np.dtype(dtype)
        body = self.body_size(shape) if _is_float(kind) else prod(shape) * kind.itemsize
        return HEADER.size + body


def _as_is(shape: tuple[int, ...], dtype: str) -> int:
    return HEADER.size + prod(shape) * np.dtype(dtype).itemsize


def exactly(body: memoryview, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """So many numbers of a type, as a view; `ValueError` for any other number of bytes."""
    if body.nbytes != count * dtype.itemsize:
        raise ValueError(f"{count * dtype.itemsize} bytes expected, {body.nbytes} received")
    return np.frombuffer(body, dtype)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return np.issubdtype(dtype, np.floating)


_registered: dict[str, Codec] = {}
CodecClass = TypeVar("CodecClass", bound=type[Codec])


def register(codec: CodecClass) -> CodecClass:
    """Make a class known by its name; a class decorator."""
    made = codec()
    for other in _registered.values():
        same = type(other).__qualname__ == codec.__qualname__
        kinds = getattr(other, "kind", None), getattr(made, "kind", -1)
        if not same and (other.name == made.name or kinds[0] == kinds[1]):
            raise ValueError(f"the codecs {other.name!r} and {made.name!r} clash")
    _registered[made.name] = made
    return codec


def all_codecs() -> Mapping[str, Codec]:
    """Every codec by its name, the lossless ones first."""
    _discover()
    return dict(sorted(_registered.items(), key=lambda item: item[1].lossy))


@cache
def _discover() -> None:
    folder = import_module("cans.models.codecs")
    for module in iter_modules(folder.__path__):
        import_module(f"{folder.__name__}.{module.name}")


def codec_at(name: str, point_index: int, image: ImageSpec | None = None) -> Codec | None:
    """The codec to use at a point; None where it does not apply (jpeg on an activation)."""
    known = all_codecs()
    if name not in known:
        raise unknown_name("codec", name, known)
    return known[name].at(point_index, image)


def get_codec(name: str, image: ImageSpec | None = None) -> Codec:
    """The codec of this name for a model's raw input; an error when the input does not fit it."""
    found = codec_at(name, 0, image)
    if found is None:
        raise unknown_name("codec for the raw input", name, all_codecs())
    return found
