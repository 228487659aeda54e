"""Codecs: what comes back, how big it is on the wire, and that garbage is refused."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from cans.models.codecs.codec import PayloadError, all_codecs, codec_at, get_codec
from cans.models.codecs.image import ImageSpec, to_pixels

CODECS = {name: codec for name, codec in all_codecs().items() if name != "jpeg"}

SHAPES = [(1, 16, 14, 14), (1, 197, 32), (1, 64), (3,), (), (2, 3, 5, 7), (0, 4)]
IMAGENET = ImageSpec((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def values(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(1).normal(0, 3, shape).astype(dtype)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_round_trip_and_size(name: str, shape: tuple[int, ...], dtype: str) -> None:
    codec, array = CODECS[name], values(shape, dtype)
    payload = codec.encode(array)
    back = codec.decode(payload, shape, dtype)
    assert (back.shape, back.dtype) == (array.shape, array.dtype)
    spread = float(np.ptp(array)) if array.size else 0.0
    allowed = {"float32": 0.0, "float16": 0.01}.get(name, spread / 255 + 0.01)
    assert np.abs(back - array).max(initial=0.0) <= allowed
    if codec.exact_size and array.size:
        assert len(payload) == codec.size(shape, dtype)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "int32"])
def test_integers_are_never_changed(name: str, dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    codec = CODECS[name]
    payload = codec.encode(array)
    assert np.array_equal(codec.decode(payload, (2, 3, 4), dtype), array)
    assert len(payload) == codec.size((2, 3, 4), dtype)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38])
def test_what_a_codec_cannot_hold_goes_as_it_is(name: str, bad: float) -> None:
    array = values((1, 4, 8, 8))
    array[0, 1, 2, 3], array[0, 1, 2, 4] = bad, -3e38
    back = CODECS[name].decode(CODECS[name].encode(array), array.shape, "float32")
    assert np.array_equal(back, array, equal_nan=True)


def test_a_channel_of_its_own_scale_keeps_its_detail() -> None:
    array = values((1, 4, 16, 16)) * np.array([1e-3, 1, 1e3, 0]).reshape(1, 4, 1, 1).astype("f4")
    back = CODECS["uint8"].decode(CODECS["uint8"].encode(array), array.shape, "float32")
    for channel in range(4):
        spread = np.ptp(array[0, channel])
        assert np.abs(back[0, channel] - array[0, channel]).max() <= spread / 255


@pytest.mark.parametrize("shape", [(1, 3, 32, 48), (2, 48, 32, 3), (2, 1, 16, 16)])
def test_pictures_as_pixels_and_jpeg(shape: tuple[int, ...]) -> None:
    spec = IMAGENET if 3 in (shape[1], shape[3]) else ImageSpec((0.5,), (0.5,))
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    smooth = np.sort(pixels, axis=2)
    channel = 1 if shape[1] in (1, 3) else 3
    target = [1] * 4
    target[channel] = -1
    mean, std = (np.array(each, "f4").reshape(target) for each in (spec.mean, spec.std))
    array = ((smooth / np.float32(255) - mean) / std).astype(np.float32)
    exact = get_codec("uint8", spec)
    assert np.array_equal(
        to_pixels(exact.decode(exact.encode(array), shape, "float32"), spec), smooth
    )
    assert len(exact.encode(array)) == exact.size(shape)
    jpeg = get_codec("jpeg", spec)
    assert np.abs(jpeg.decode(jpeg.encode(array), shape, "float32") - array).mean() < 0.6


def test_jpeg_is_for_the_raw_input_only() -> None:
    assert codec_at("jpeg", 3, IMAGENET) is None
    assert codec_at("jpeg", 0, IMAGENET) is not None


@given(st.binary(max_size=300), st.sampled_from(range(8)), st.sampled_from(SHAPES))
@settings(max_examples=200, deadline=None)
def test_garbage_raises_only_our_error(data: bytes, kind: int, shape: tuple[int, ...]) -> None:
    for codec in (*CODECS.values(), get_codec("uint8", IMAGENET), get_codec("jpeg", IMAGENET)):
        for payload in (data, b"CT" + bytes([kind, 0]) + data):
            with suppress(PayloadError):
                assert codec.decode(payload, shape, "float32").shape == shape


@given(st.sampled_from([*CODECS, "jpeg", "pixels"]), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_payloads_raise_only_our_error(name: str, data: st.DataObject) -> None:
    shape = (1, 3, 8, 8)
    image = IMAGENET if name in ("jpeg", "pixels") else None
    codec = get_codec("uint8" if name == "pixels" else name, image)
    payload = bytearray(codec.encode(values(shape)))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for damaged in (bytes(payload), bytes(payload[:cut]), bytes(payload) + b"x"):
        with suppress(PayloadError):
            assert codec.decode(damaged, shape, "float32").shape == shape


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    payload = b"CT" + bytes([3, 0]) + struct.pack("<ff", 0, 1) + frame
    with pytest.raises(PayloadError, match="size"):
        CODECS["uint8-zstd"].decode(payload, (1, 4, 4, 4), "float32")
    lying = bytearray(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20)))
    with pytest.raises(PayloadError):
        CODECS["uint8-zstd"].decode(payload[:12] + bytes(lying), (1, 4, 4, 4), "float32")
