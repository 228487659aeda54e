"""Messages go out and come back unchanged; garbage raises one error and no other."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cans.errors import RemoteProtocolError
from cans.learning import DeviceIdentity, Download, SufficientStatistics
from cans.learning.part import PartRecord
from cans.live.wire import frame, messages
from cans.live.wire.proto import edge
from tests.live.values import KEY, some_statistics, upload


@given(some_statistics())
def test_statistics_round_trip(value: SufficientStatistics) -> None:
    data = messages.serialized(messages.statistics_out(value))
    back = messages.statistics_in(messages.parse(edge.Statistics, data))
    assert back.equals(value, tolerance=0.0)
    assert len(data) <= 8 * (value.dimension * (value.dimension + 1) // 2 + value.dimension + 4) + 9


def test_other_round_trips() -> None:
    identity = DeviceIdentity("a", "b", "c", "d")
    assert messages.identity_in(messages.identity_out(identity)) == identity
    sent = upload("a", 3, seed=5)
    back = messages.upload_in(messages.upload_out(sent))
    assert (back.key, back.sequence, back.time) == (sent.key, sent.sequence, sent.time)
    for acknowledged in (None, 0, 7):
        download = Download(KEY, 2, sent.statistics, 9, acknowledged, 1.5)
        again = messages.download_in(messages.download_out(download))
        assert (again.epoch, again.round, again.acknowledged) == (2, 9, acknowledged)
    for pending in (None, sent.statistics):
        record = PartRecord(KEY, 1, 4, sent.statistics, sent.statistics, pending, sent.statistics)
        kept = messages.record_in(messages.record_out(record))
        assert (kept.sequence, kept.sent is None) == (4, pending is None)


@pytest.mark.parametrize(
    "changes",
    [
        {"b": [math.nan, 1.0]},
        {"squares": math.inf},
        {"b": []},
        {"sigma": [1.0]},
        {"count": 2**63},
        {"b": [0.0] * 300, "sigma": [0.0] * (300 * 301 // 2)},
    ],
)
def test_impossible_statistics(changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {"sigma": [1.0, 0.0, 1.0], "b": [1.0, 1.0], "count": 1, "weight": 1.0}
    with pytest.raises(RemoteProtocolError):
        messages.statistics_in(edge.Statistics(**{**good, **changes}))


@given(st.binary(max_size=300))
def test_garbage_raises_only_the_protocol_error(data: bytes) -> None:
    readers = (
        (edge.Upload, messages.upload_in),
        (edge.Download, messages.download_in),
        (edge.PartRecord, messages.record_in),
        (edge.Identity, messages.identity_in),
    )
    for kind, read in readers:
        with suppress(RemoteProtocolError):
            read(messages.parse(kind, data))
    with suppress(RemoteProtocolError):
        frame.parted(data)


@given(st.binary(max_size=200), st.lists(st.binary(max_size=400), max_size=5))
def test_a_frame_is_a_protobuf_message(header: bytes, tensors: list[bytes]) -> None:
    data = frame.joined(header, tensors)
    found, parts = frame.parted(data)
    assert (bytes(found), [bytes(each) for each in parts]) == (header, tensors)
    views = [memoryview(each) for each in tensors]
    assert frame.joined(header, views) == data


def test_frames_and_protobuf_agree() -> None:
    header = edge.InferHeader(device="a", point=3)
    data = frame.joined(header.SerializeToString(), [b"x" * 300, b"", b"yz"])
    message = edge.InferRequest.FromString(data)
    assert message.header == header
    assert list(message.tensors) == [b"x" * 300, b"", b"yz"]
    plain = edge.InferRequest(header=header, tensors=[b"x" * 300, b"yz"]).SerializeToString()
    found, tensors = frame.parted(plain)
    assert bytes(found) == header.SerializeToString()
    assert [bytes(each) for each in tensors] == [b"x" * 300, b"yz"]


@given(st.binary(max_size=200), st.lists(st.binary(max_size=400), max_size=5))
def test_tensors_are_aligned(header: bytes, tensors: list[bytes]) -> None:
    data = frame.joined(header, tensors)
    start = np.frombuffer(data, np.uint8).ctypes.data
    for part in frame.parted(data)[1]:
        if part.nbytes:
            assert (np.frombuffer(part, np.uint8).ctypes.data - start) % 16 == 0


@pytest.mark.parametrize(
    "data", [b"", b"\x12\x01a", b"\x0a\x05a", b"\x0a\xff", b"\x0a\x00\x0a\x00", b"\x22\x00"]
)
def test_broken_frames(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frame.parted(data)


def test_too_many_tensors() -> None:
    with pytest.raises(RemoteProtocolError, match="more than"):
        frame.parted(frame.joined(b"", [b""] * (frame.MOST_TENSORS + 1)))


def test_names_are_bounded() -> None:
    for bad in ("", "x" * 257, "a\nb"):
        with pytest.raises(RemoteProtocolError):
            messages.name(bad, "device")
