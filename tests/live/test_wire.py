"""Messages go out and come back unchanged; garbage raises one error and no other."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cans.errors import Refused, RemoteProtocolError
from cans.learning import DeviceIdentity, Download, SufficientStatistics
from cans.learning.device.part import PartRecord
from cans.live.split import Cutting
from cans.live.wire import frame, learned
from cans.live.wire.inference import (
    Assembly,
    InferHeader,
    InferReply,
    InferRequest,
    TensorMeta,
    first_piece,
)
from cans.live.wire.messages import (
    JoinRequest,
    PoolNews,
    PoolUpdate,
    ProbeReply,
    ProbeRequest,
    SyncReply,
    SyncRequest,
    WatchRequest,
    Welcome,
)
from cans.live.wire.model_files import FetchRequest, FileDigest, ModelChunk
from cans.live.wire.open_inference import WholeRequest
from cans.live.wire.proto import edge
from tests.live.running import terms
from tests.live.toy import toy
from tests.live.values import KEY, some_statistics, upload

CHOICE_SUMS = ("choice_weight", "choice_sum", "choice_squares")


def test_sums_of_choices_travel_if_there_are_any() -> None:
    """Only those that were observed; who has none says nothing of them, as releases before."""
    sums = np.zeros((5, 4))
    sums[:3, 1], sums[:3, 3] = (2.0, 5.0, 13.0), (1.0, 3.0, 9.0)
    value = SufficientStatistics(np.eye(2), np.ones(2), 1.0, 3.0, 3, sums)
    data = learned.statistics_to_bytes(value)
    assert learned.statistics_from_bytes(data).choices.tolist() == sums.tolist()
    without = SufficientStatistics(np.eye(2), np.ones(2), 1.0, 3.0, 3)
    assert len(data) <= len(learned.statistics_to_bytes(without)) + 2 * (3 * 8 + 1) + 4 * 2
    assert learned.statistics_from_bytes(learned.statistics_to_bytes(without)).choices.size == 0


def test_what_devices_tell_of_their_pace_travels_with_their_choices() -> None:
    sums = np.zeros((5, 4))
    sums[:, 1], sums[:, 3] = (2.0, 5.0, 13.0, -0.01, 1.0), (1.0, 3.0, 9.0, 0.0, 0.0)
    value = SufficientStatistics(np.eye(2), np.ones(2), 1.0, 3.0, 3, sums)
    again = learned.statistics_from_bytes(learned.statistics_to_bytes(value))
    assert again.choices.tolist() == sums.tolist()


@given(some_statistics())
def test_statistics_round_trip(value: SufficientStatistics) -> None:
    data = learned.statistics_to_bytes(value)
    back = learned.statistics_from_bytes(data)
    assert back.equals(value, tolerance=0.0)
    assert len(data) <= 8 * (value.dimension * (value.dimension + 1) // 2 + value.dimension + 4) + 9


def test_other_round_trips() -> None:
    identity = DeviceIdentity("a", "b", "c", "d")
    assert learned.identity_in(learned.identity_out(identity)) == identity
    sent = upload("a", 3, seed=5)
    back = learned.upload_in(learned.upload_out(sent))
    assert (back.key, back.epoch, back.sequence) == (sent.key, sent.epoch, sent.sequence)
    for acknowledged in (None, 0, 7):
        download = Download(KEY, 2, sent.statistics, 9, acknowledged, 1.5)
        again = learned.download_in(learned.download_out(download))
        assert (again.epoch, again.round, again.acknowledged) == (2, 9, acknowledged)
    for pending in (None, sent.statistics):
        record = PartRecord(KEY, 1, 4, sent.statistics, sent.statistics, pending, sent.statistics)
        kept = learned.record_in(learned.record_out(record))
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
        {"choice": [1], "choice_weight": [1.0], "choice_sum": [1.0]},
        {"choice": [2, 1], **{name: [1.0, 1.0] for name in CHOICE_SUMS}},
        {"choice": [10_000], **{name: [1.0] for name in CHOICE_SUMS}},
        {"choice": [1], "choice_weight": [-1.0], "choice_sum": [1.0], "choice_squares": [1.0]},
        {"choice": [1], "choice_weight": [1.0], "choice_sum": [math.inf], "choice_squares": [1.0]},
        {"choice": [1], **{name: [1.0] for name in CHOICE_SUMS}, "choice_unlike": [1.0]},
        {"choice": [1], **{name: [1.0] for name in (*CHOICE_SUMS, "choice_telling")}},
    ],
)
def test_impossible_statistics(changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {"sigma": [1.0, 0.0, 1.0], "b": [1.0, 1.0], "count": 1, "weight": 1.0}
    with pytest.raises(RemoteProtocolError):
        learned.statistics_in(edge.Statistics(**{**good, **changes}))


@given(st.binary(max_size=300))
def test_garbage_raises_only_the_protocol_error(data: bytes) -> None:
    readers = (
        (edge.Upload, learned.upload_in),
        (edge.Download, learned.download_in),
        (edge.PartRecord, learned.record_in),
        (edge.Identity, learned.identity_in),
    )
    for kind, read in readers:
        with suppress(RemoteProtocolError):
            read(learned.parse(kind, data))
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
            learned.name(bad, "device")


# --- whole messages ---

IDENTITY = DeviceIdentity("a", "b", "c", "d")


def welcome(**changes: Any) -> Welcome:
    model = toy()
    update = PoolUpdate(Download(KEY, 2, upload("a", 3).statistics, 9, 7, 1.5), "too far off")
    given: dict[str, Any] = {
        "server": "edge", "time": 12.5, "terms": terms("cans"), "table": model.table,
        "cutting": Cutting(2, None, "0.5/0.5", (("x", (1, 3)),)), "pools": (update,),
        "model_name": "toy",
    }  # fmt: skip
    return Welcome(**{**given, **changes})


def header(**changes: Any) -> InferHeader:
    given: dict[str, Any] = {
        "device": "a", "incarnation": "b", "model": "m", "table": "t", "point": 3,
        "codec": "float32", "tensors": (TensorMeta("x", "float32", (1, 2)),),
        "known": {KEY: (1, 4)}, "patience_ms": 250.0,
    }  # fmt: skip
    return InferHeader(**{**given, **changes})


def test_messages_without_statistics_come_back_equal() -> None:
    for message in (
        JoinRequest(IDENTITY, "model"),
        WatchRequest("a", {KEY: (1, 2)}),
        ProbeRequest(100),
        ProbeReply(5.0),
        FetchRequest("model", 7, "weights.bin"),
        ModelChunk(b"data"),
        ModelChunk(file=FileDigest("m.onnx", 9, "ab"), beside=(FileDigest("w", 1, "cd"),)),
        PoolNews((), 3.0),
        SyncReply((), 3.0),
    ):
        assert type(message).from_bytes(message.to_bytes()) == message


def test_a_welcome_comes_back_as_it_was() -> None:
    sent = welcome()
    back = Welcome.from_bytes(sent.to_bytes())
    assert (back.server, back.time, back.terms, back.cutting) == ("edge", 12.5, sent.terms,
                                                                 sent.cutting)  # fmt: skip
    assert back.table.version == sent.table.version
    assert (back.pools[0].refused, back.pools[0].download.acknowledged) == ("too far off", 7)
    assert Welcome.from_bytes(sent.without_pools().to_bytes()).pools == ()


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0, 1e12])
def test_no_clock_follows_an_impossible_time(time: float) -> None:
    for message in (welcome(time=time), SyncReply((), time), PoolNews((), time), ProbeReply(time)):
        with pytest.raises(RemoteProtocolError, match="no time of a clock"):
            type(message).from_bytes(message.to_bytes())


def test_one_bad_pool_does_not_cost_the_others() -> None:
    update = welcome().pools[0]
    bad = PoolUpdate(replace(update.download, time=math.nan))
    back = SyncReply.from_bytes(SyncReply((bad, update, bad), 1.0).to_bytes())
    assert [each.refused for each in back.pools] == ["too far off"]
    with pytest.raises(RemoteProtocolError, match="at most 64"):
        SyncReply.from_bytes(SyncReply((update,) * 65, 1.0).to_bytes())


def test_a_request_is_the_same_whole_and_in_pieces() -> None:
    tensors = [memoryview(bytes(range(256)) * 5000), memoryview(b"xyz")]
    sent = InferRequest(header(tensors=(TensorMeta("x", "uint8", (1,)),) * 2), tensors)
    whole = InferRequest.from_bytes(sent.to_bytes())
    first, *pieces = sent.pieces()
    announced = first_piece(first)
    assembly = Assembly(announced.sizes)
    for each in pieces:
        assembly.add(each)
    assert whole.header == sent.header == replace(announced, sizes=())
    assert list(whole.tensors) == list(assembly.tensors()) == tensors


@pytest.mark.parametrize(
    "changes",
    [
        {"device": ""},
        {"model": "x" * 300},
        {"codec": "\n"},
        {"patience_ms": math.nan},
        {"patience_ms": -1.0},
        {"point": 2**31},
        {"tensors": (TensorMeta("x", "float32", (1,) * 40),)},
        {"known": {KEY._replace(scope=str(i)): (0, 0) for i in range(65)}},
        {"uploads": (upload("a", 0),) * 65},
        {"sizes": (1,) * 2000},
    ],
)
def test_headers_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        InferRequest.from_bytes(InferRequest(header(**changes), []).to_bytes())


def test_outputs_that_cannot_be() -> None:
    def reply(meta: TensorMeta) -> bytes:
        meta_out = edge.TensorMeta(name=meta.name, dtype=meta.dtype, shape=meta.shape)
        return frame.joined(
            edge.InferReplyHeader(tensors=[meta_out]).SerializeToString(), [b"abcd"]
        )

    good = InferReply.from_bytes(reply(TensorMeta("y", "uint8", (2, 2))))
    assert good.outputs["y"].tolist() == [[97, 98], [99, 100]]
    for bad in (("y", "float32", (2,)), ("y", "object", (1,)), ("y", "nonsense", (4,))):
        with pytest.raises(RemoteProtocolError):
            InferReply.from_bytes(reply(TensorMeta(*bad)))


@given(st.binary(max_size=300))
def test_garbage_is_no_message(data: bytes) -> None:
    for kind in (JoinRequest, Welcome, SyncRequest, SyncReply, WatchRequest, PoolNews,
                 FetchRequest, ModelChunk, InferRequest, InferReply, WholeRequest):  # fmt: skip
        with suppress(RemoteProtocolError, Refused):
            kind.from_bytes(data)
