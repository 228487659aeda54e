"""A connection between a front door and one replica: a request's tensors there, outputs back.

Ray starts replicas, finds room for them and ends them. Tensors do not travel as its objects: a call
with 600 KB costs several milliseconds then, on a socket half of one; and a connection that breaks
says at once that a process or a node is gone. A frame is the length of a header, the header as
JSON, and then parts of bytes whose sizes the header has.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

TOKEN_BYTES = 32
_LENGTH = struct.Struct(">I")
_LARGEST_HEADER = 1 << 20
_LARGEST_PART = 1 << 31
_GREETING_S = 10.0  # for a stranger to show its token

Header = dict[str, Any]
Parts = Sequence[memoryview]
Address = tuple[str, int]
Answer = Callable[[Header, Parts], tuple[Header, Parts]]


class Channel:
    """Frames over a connected socket; whatever breaks it is an `OSError` or a `ValueError`."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = connected

    def send(self, header: Header, parts: Parts = ()) -> None:
        text = json.dumps(header | {"sizes": [each.nbytes for each in parts]}).encode()
        self._socket.sendall(_LENGTH.pack(len(text)) + text)
        for each in parts:
            self._socket.sendall(each.cast("B") if each.nbytes else b"")

    def receive(self) -> tuple[Header, list[memoryview]]:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _LARGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        header: Header = json.loads(bytes(self._exactly(length)))
        if not isinstance(header, dict) or "sizes" not in header:
            raise ValueError("a header without sizes")
        sizes = [int(each) for each in header["sizes"]]
        if any(not 0 <= each <= _LARGEST_PART for each in sizes):
            raise ValueError("a part of no sane size")
        return header, [self._exactly(each) for each in sizes]

    def _exactly(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        at = 0
        while at < size:
            count = self._socket.recv_into(buffer[at:])
            if not count:
                raise ConnectionError("the other side has gone")
            at += count
        return buffer

    def show(self, token: bytes) -> None:
        self._socket.sendall(token)

    def shown(self, token: bytes) -> bool:
        return hmac.compare_digest(bytes(self._exactly(TOKEN_BYTES)), token)

    def patience(self, seconds: float | None) -> None:
        """How long anything may take from now on."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()


def connect(address: Address, token: bytes, seconds: float) -> Channel:
    """To a replica; `OSError` where there is no way to it."""
    channel = Channel(socket.create_connection(address, timeout=seconds))
    channel.show(token)
    return channel


class Door:
    """Where a replica listens: one thread for each front door that knows its token."""

    def __init__(self, host: str, token: bytes, answer: Answer) -> None:
        self._token = token
        self._answer = answer
        self._listening = socket.create_server((host, 0))
        self.address: Address = self._listening.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connected, _ = self._listening.accept()
            threading.Thread(target=self._serve, args=(Channel(connected),), daemon=True).start()

    def _serve(self, channel: Channel) -> None:
        with suppress(OSError, ValueError):
            channel.patience(_GREETING_S)
            if channel.shown(self._token):
                channel.patience(None)
                while True:
                    channel.send(*self._answer(*channel.receive()))
        channel.close()
