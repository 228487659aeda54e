"""The connection between a front door and a replica: whole frames, for those who know the token."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from cans.errors import InputError, RunError
from cans.live.server.cluster.channel import Address, Door, Header, Parts, connect
from cans.live.server.cluster.replicas import _blamed, _ran

TOKEN = b"t" * 32


def twice(header: Header, parts: Parts) -> tuple[Header, Parts]:
    return {"said": header["say"]}, [*parts, *parts]


@pytest.fixture(scope="module")
def address() -> Address:
    return Door("127.0.0.1", TOKEN, twice).address


def test_frames_of_any_size_come_back_whole(address: Address) -> None:
    channel = connect(address, TOKEN, 10.0)
    for size in (0, 1, 70_000, 12_800_000):
        sent = np.random.default_rng(size).integers(0, 255, size).astype(np.uint8)
        channel.send({"say": size}, [memoryview(sent), memoryview(b"x")])
        header, parts = channel.receive()
        assert header["said"] == size
        assert [bytes(each) for each in parts] == 2 * [sent.tobytes(), b"x"]
    channel.close()


def test_a_stranger_is_shown_out(address: Address) -> None:
    channel = connect(address, b"w" * 32, 10.0)
    with pytest.raises(ConnectionError):
        channel.receive()
    channel.close()


@pytest.mark.parametrize(
    "frame", [b"\xff\xff\xff\xff", b"\0\0\0\x04junk", b"\0\0\0\x02{}", b"\0\0\0\x08[1,2,3,4"]
)
def test_what_is_no_frame_ends_the_connection_and_nothing_else(
    address: Address, frame: bytes
) -> None:
    with socket.create_connection(address, 10.0) as stranger:
        stranger.sendall(TOKEN + frame)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b""
    channel = connect(address, TOKEN, 10.0)
    channel.send({"say": "still here"})
    assert channel.receive()[0]["said"] == "still here"
    channel.close()


def test_outputs_and_errors_as_they_were() -> None:
    made = {"outputs": [["a", "<f4", [2, 1]], ["none", "<i8", [0, 4]], ["one", "<f8", []]],
            "compute_ms": 3.0, "settled": True}  # fmt: skip
    values = [np.float32([1, 2]), np.float64([7.0])]
    ran = _ran(made, [memoryview(each.tobytes()) for each in values])
    assert ran.outputs["a"].tolist() == [[1.0], [2.0]]
    assert ran.outputs["none"].shape == (0, 4)
    assert ran.outputs["one"].shape == ()
    assert float(ran.outputs["one"]) == 7.0
    assert isinstance(_blamed("InputError", "bad"), InputError)
    assert isinstance(_blamed("os", "bad"), RunError)
