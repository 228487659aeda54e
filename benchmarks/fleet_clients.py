"""Light clients of `fleet_scale`, thousands in a process; and what the clients of a server saw."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import grpc
import numpy as np

from cans.errors import CansError
from cans.learning import DeviceIdentity, SufficientStatistics, Upload
from cans.learning.device.part import pool_key
from cans.live.wire.inference import InferHeader, InferReply, InferRequest, TensorMeta
from cans.live.wire.link import KEEPALIVE
from cans.live.wire.messages import (
    JoinRequest,
    PoolNews,
    SyncReply,
    SyncRequest,
    WatchRequest,
    Welcome,
)


@dataclass
class Tally:
    """What the clients of one server saw."""

    requests: int = 0
    fallbacks: int = 0
    uploads: int = 0  # parts; several travel in one message
    messages: int = 0  # with uploads, and with news of pools
    nbytes: int = 0  # of them, and of the answers to uploads
    riding: int = 0  # answers that took news of pools along
    told: int = 0  # messages that say how busy the server is, and nothing of a pool
    times: list[float] = field(default_factory=list)  # ms of answers
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, seconds: float, fallback: bool) -> None:
        with self.lock:
            self.requests += 1
            self.fallbacks += fallback
            self.times.append(seconds * 1e3)

    def learned(self, nbytes: int, uploads: int = 0, messages: int = 1) -> None:
        with self.lock:
            self.messages += messages
            self.uploads += uploads
            self.nbytes += nbytes

    def rode(self, reply: InferReply) -> None:
        """An answer to a request, with whatever it says of pools."""
        if reply.pools:
            with self.lock:
                self.riding += 1
                self.nbytes += len(SyncReply(reply.pools, reply.time).to_bytes())

    def heard(self, data: bytes) -> None:
        """A message of a stream of news."""
        if PoolNews.from_bytes(data).pools:
            self.learned(len(data))
        else:
            with self.lock:
                self.told += 1

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COUNTED}

    def add(self, other: dict[str, Any]) -> None:
        """What the clients of another process saw, as they wrote it."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + other[name])


COUNTED = tuple(each.name for each in fields(Tally) if each.name != "lock")


class LightFleet:
    """Clients that speak the real wire and compute nothing, all in one event loop."""

    def __init__(self, port: int, devices: int, uploads: float) -> None:
        self.tally = Tally()
        self._clients = [_Client(port, self, i, uploads) for i in range(devices)]
        self._watching: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        for some in range(0, len(self._clients), 100):
            await asyncio.gather(*(each.join() for each in self._clients[some : some + 100]))
        for each in self._clients:  # as after its first 100 inferences: young pools are told more
            if each.keys:
                await each.upload(range(len(each.keys)), 100)
        self._watching = [asyncio.create_task(each.watch()) for each in self._clients if each.keys]

    async def play(self, requests: int, rate: float) -> None:
        offsets = np.arange(len(self._clients)) / len(self._clients) / rate
        await asyncio.gather(
            *(each.play(requests, rate, offset)
              for each, offset in zip(self._clients, offsets, strict=True))
        )  # fmt: skip

    def cpu(self) -> float:
        """Seconds so far."""
        return time.process_time()

    async def close(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for client in self._clients:
            await client.channel.close()


class _Client:
    """A device reduced to what it says and hears."""

    def __init__(self, port: int, fleet: LightFleet, number: int, uploads: float) -> None:
        self.fleet = fleet
        self.number = number
        self.uploads = uploads  # per inference and part
        self.channel = grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1), *KEEPALIVE]
        )
        self.sequence: dict[str, int] = {}
        self.random = np.random.default_rng(number)

    async def join(self) -> None:
        who = DeviceIdentity(f"light-{self.number}", "1", f"type-{self.number % 5}", "lab")
        call = self.channel.unary_unary("/cans.v1.Edge/Join")
        welcome = Welcome.from_bytes(await call(JoinRequest(who).to_bytes(), timeout=60))
        self.who, self.table, policy = who, welcome.table, welcome.terms.policy
        shared = [part for part in policy.parts if part.shared]
        self.watched = [pool_key(part, self.table, policy, who) for part in shared]
        booked = policy.of_server if welcome.books_server else ()  # by the server: nothing to say
        self.parts = [part for part in shared if part not in booked]
        self.keys = [pool_key(part, self.table, policy, who) for part in self.parts]

    async def play(self, requests: int, rate: float, offset: float) -> None:
        begin = time.monotonic() + offset
        for i in range(requests):
            await asyncio.sleep(max(begin + i / rate - time.monotonic(), 0.0))
            start = time.perf_counter()
            answered = await self._infer()
            self.fleet.tally.answered(time.perf_counter() - start, not answered)
            due = [part for part in range(len(self.keys)) if self.random.random() < self.uploads]
            if due:
                await self.upload(due)

    async def _infer(self) -> bool:
        header = InferHeader(
            self.who.device, "1", self.table.digest, self.table.version, 0, "float32",
            (TensorMeta("t0", "float32", (1, 64)),),
        )  # fmt: skip
        data = InferRequest(header, [memoryview(bytes(256))]).to_bytes()
        call = self.channel.unary_unary("/cans.v1.Edge/Infer")
        try:
            reply = InferReply.from_bytes(await call(data, timeout=10))
        except (CansError, grpc.RpcError):
            return False
        self.fleet.tally.rode(reply)
        return True

    async def upload(self, due: Sequence[int], observations: int = 1) -> None:
        uploads = []
        for number in due:
            part, key = self.parts[number], self.keys[number]
            row = self.table.columns(part.explains)[1]
            ms = row.sum() * (1 + 0.05 * self.random.standard_normal(observations))
            sequence = self.sequence.get(part.name, 0)
            self.sequence[part.name] = sequence + 1
            observed = SufficientStatistics(
                observations * np.outer(row, row), ms.sum() * row, float(ms @ ms),
                float(observations), observations,
            )  # fmt: skip
            uploads.append(Upload(self.who.device, "1", key, 0, sequence, observed))
        data = SyncRequest(tuple(uploads)).to_bytes()
        answer = await self.channel.unary_unary("/cans.v1.Edge/Sync")(data, timeout=30)
        self.fleet.tally.learned(len(data) + len(answer), len(uploads))

    async def watch(self) -> None:
        request = WatchRequest(self.who.device, dict.fromkeys(self.watched, (0, 0)))
        async for data in self.channel.unary_stream("/cans.v1.Edge/Watch")(request.to_bytes()):
            self.fleet.tally.heard(data)
