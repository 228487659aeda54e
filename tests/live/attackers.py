"""Attacks on a server, each in a process of its own:
`python -m tests.live.attackers NAME PORT SECONDS TOKEN INFO`.

INFO is JSON that tells the attacker what any joined device knows: digest, table, a tensor. An
attack goes on until its time is up, whatever the server answers, and prints how often it tried.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc

from cans.live.wire import frame, learned
from cans.live.wire.proto import edge
from tests.live.values import statistics

PATH = "/cans.v1.Edge/"
LARGE = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


class Attack:
    """What attackers share."""

    def __init__(self, port: int, seconds: float, token: str, info: dict[str, Any]) -> None:
        self.address = f"127.0.0.1:{port}"
        self.port = port
        self.until = time.monotonic() + seconds
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.info = info
        self.tried = 0
        self._channels: list[Any] = []
        self.held: list[socket.socket] = []

    def close(self) -> None:
        for each in (*self._channels, *self.held):
            each.close()

    def going(self) -> bool:
        return time.monotonic() < self.until

    def left(self) -> float:
        return max(self.until - time.monotonic(), 0.0)

    def channel(self) -> grpc.Channel:
        self._channels.append(grpc.insecure_channel(self.address, LARGE))
        return self._channels[-1]

    def call(self, channel: grpc.Channel, method: str, data: bytes, seconds: float = 5.0) -> str:
        self.tried += 1
        try:
            seconds = min(seconds, self.left() + 0.5)
            channel.unary_unary(PATH + method)(data, timeout=seconds, metadata=self.metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    def header(self, **changes: Any) -> Any:
        info = self.info
        tensor = edge.TensorMeta(name=info["tensor"], dtype="float32", shape=info["shape"])
        given = {
            "device": info["device"], "incarnation": "1", "model": info["model"],
            "table": info["table"], "point": 0, "codec": "float32", "tensors": [tensor],
        }  # fmt: skip
        return edge.InferHeader(**{**given, **changes})

    def threads(self, work: Callable[[], None], count: int) -> None:
        running = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        for each in running:
            each.start()
        for each in running:
            each.join(self.left() + 10)


def announced_megabytes(attack: Attack) -> None:
    """80 streams that announce 64 MB in a few bytes and then send nothing."""

    def work() -> None:
        channel = attack.channel()
        call = channel.stream_unary(PATH + "InferLarge")
        while attack.going():
            piece = edge.InferPiece(header=attack.header(sizes=[64 << 20])).SerializeToString()

            def pieces(piece: bytes = piece) -> Iterator[bytes]:
                yield piece
                until = time.monotonic() + 5.0
                while attack.going() and time.monotonic() < until:
                    time.sleep(0.05)

            attack.tried += 1
            with suppress(grpc.RpcError):
                call(pieces(), timeout=attack.left() + 1, metadata=attack.metadata)
            time.sleep(0.05)

    attack.threads(work, 80)


def stalled_messages(attack: Attack, connections: int = 30) -> None:
    """Connections that each stop in the middle of a message of 63 MB, in raw HTTP/2."""
    while attack.going():
        while len(attack.held) < connections and attack.going():
            with suppress(OSError):
                attack.held.append(_stalled(attack))
                attack.tried += 1
        time.sleep(0.2)
        attack.held = [each for each in attack.held if _alive(each)]


def _stalled(attack: Attack) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", attack.port), 5)
    made.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
    block = b"".join(
        _literal(name, value)
        for name, value in (
            (":method", "POST"), (":scheme", "http"), (":path", PATH + "Infer"),
            (":authority", "x"), ("content-type", "application/grpc"), ("te", "trailers"),
            *attack.metadata,
        )
    )  # fmt: skip
    made.sendall(_frame(1, 4, 1, block))
    made.settimeout(0.5)
    size = 63 << 20
    made.sendall(_frame(0, 0, 1, b"\0" + struct.pack(">I", size) + bytes(8000)))
    with suppress(OSError):  # as far as flow control lets us
        window = 65_535 - 8005
        while window > 0:
            step = min(window, 16_384)
            made.sendall(_frame(0, 0, 1, bytes(step)))
            window -= step
    made.settimeout(0)
    return made


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream
    ) + payload  # fmt: skip


def _literal(name: str, value: str) -> bytes:
    """A header of HPACK without any compression."""

    def text(part: str) -> bytes:
        data = part.encode()
        if len(data) < 127:
            return bytes([len(data)]) + data
        return b"\x7f" + bytes([len(data) - 127]) + data

    return b"\0" + text(name) + text(value)


def _alive(made: socket.socket) -> bool:
    try:
        while made.recv(65_536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    made.close()
    return False


def jpeg_scans(attack: Attack) -> None:
    """A picture of a million and a half scans, said to be a JPEG, to a server that offers none."""
    bomb = _jpeg_bomb()
    channel = attack.channel()
    while attack.going():
        for codec in ("jpeg", "float32"):
            header = attack.header(codec=codec).SerializeToString()
            attack.call(channel, "Infer", frame.joined(header, [bomb]), 60.0)
        time.sleep(0.1)


def _jpeg_bomb(scans: int = 1_500_000) -> bytes:
    """The head of a picture and many empty scans."""
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"[:2]
    return (b"CT\x05\x00" + b"\xff\xd8\xff\xe0" + scan * scans)[: (3 << 20)]


def invented_pools(attack: Attack) -> None:
    """Uploads to networks that exist in the attacker's head only."""
    channel = attack.channel()
    number = 0
    while attack.going():
        number += 1
        key = learned.key_out(_key(attack, "link", f"network:invented-{number}"))
        attack.call(channel, "Sync", _sync(attack, key, incarnation="1"))


def fresh_incarnations(attack: Attack) -> None:
    """The same device wiped a thousand times a second, by its own account."""
    channel = attack.channel()
    number = 0
    while attack.going():
        number += 1
        key = learned.key_out(_key(attack, "server", "everyone"))
        attack.call(channel, "Sync", _sync(attack, key, incarnation=f"fresh-{number}"))


def _key(attack: Attack, part: str, scope: str) -> Any:
    from cans.learning import PoolKey

    return PoolKey(attack.info["model"], attack.info["table"], attack.info["policy"], part, scope)


def _sync(attack: Attack, key: Any, incarnation: str) -> bytes:
    columns = attack.info["columns"][key.part]
    upload = edge.Upload(
        device=attack.info["device"], incarnation=incarnation, key=key, sequence=0,
        statistics=learned.statistics_out(statistics(1, 2, columns)),
    )  # fmt: skip
    data: bytes = edge.SyncRequest(uploads=[upload]).SerializeToString()
    return data


def watchers(attack: Attack) -> None:
    """300 watchers of 64 invented pools each."""
    channel = attack.channel()
    call = channel.unary_stream(PATH + "Watch")

    def work() -> None:
        while attack.going():
            known = [
                edge.KnownPool(key=learned.key_out(_key(attack, "link", f"network:no-{i}")))
                for i in range(64)
            ]
            request = edge.WatchRequest(device=attack.info["device"], known=known)
            attack.tried += 1
            with suppress(grpc.RpcError):
                stream = call(
                    request.SerializeToString(), timeout=attack.left() + 1,
                    metadata=attack.metadata,
                )  # fmt: skip
                for _ in stream:
                    pass
            time.sleep(0.5)

    attack.threads(work, 300)


def long_names(attack: Attack) -> None:
    """A model name of as many bytes as a message may have."""
    channel = attack.channel()
    name = "x" * (4 << 20)
    while attack.going():
        who = edge.Identity(device=attack.info["device"], incarnation="1", type="a", network="b")
        attack.call(channel, "Join", edge.JoinRequest(identity=who, model=name).SerializeToString())
        attack.call(channel, "Join", bytes(60 << 20))
        time.sleep(0.2)


def greedy(attack: Attack) -> None:
    """60 requests at a time, for ever."""
    channel = attack.channel()
    shape = attack.info["shape"]
    size = 4
    for each in shape:
        size *= each
    data = frame.joined(attack.header().SerializeToString(), [bytes(size)])

    def work() -> None:
        while attack.going():
            if attack.call(channel, "Infer", data, 30.0) != "OK":
                time.sleep(0.02)

    attack.threads(work, 60)


def idle_connections(attack: Attack, count: int = 1000) -> None:
    """A thousand connections on which nothing is ever said, opened again when they are closed."""
    while attack.going():
        while len(attack.held) < count and attack.going():
            try:
                made = socket.create_connection(("127.0.0.1", attack.port), 1)
            except OSError:
                time.sleep(0.05)
                break
            made.setblocking(False)
            attack.held.append(made)
            attack.tried += 1
        time.sleep(0.1)
        attack.held = [each for each in attack.held if _alive(each)]


ATTACKS: dict[str, Callable[[Attack], None]] = {
    "announced megabytes": announced_megabytes,
    "stalled messages": stalled_messages,
    "JPEG scans": jpeg_scans,
    "invented pools": invented_pools,
    "fresh incarnations": fresh_incarnations,
    "watchers": watchers,
    "long names": long_names,
    "greedy client": greedy,
    "idle connections": idle_connections,
}
WITHOUT_TOKEN = {"stalled messages", "idle connections"}


if __name__ == "__main__":
    name, port, seconds, token, info = sys.argv[1:]
    made = Attack(int(port), float(seconds), token, json.loads(info))
    ATTACKS[name](made)
    made.close()
    print(made.tried, flush=True)
