"""Clients of `fleet_scale`: real devices whose messages are counted, and many light ones."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from cans.learning import DeviceIdentity, SufficientStatistics, Upload
from cans.learning.part import pool_key
from cans.live.wire.inference import InferHeader, InferReply, InferRequest, TensorMeta
from cans.live.wire.messages import JoinRequest, SyncRequest, WatchRequest, Welcome

UPLOADS = 0.05  # per inference, of a light client: the most that a settled device may


@dataclass
class Tally:
    """What the clients of one server saw."""

    requests: int = 0
    fallbacks: int = 0
    messages: int = 0  # uploads and news
    nbytes: int = 0  # of them
    times: list[float] = field(default_factory=list)  # ms of answers
    lock: threading.Lock = field(default_factory=threading.Lock)

    def learned(self, nbytes: int) -> None:
        with self.lock:
            self.messages += 1
            self.nbytes += nbytes

    def forget(self) -> None:
        with self.lock:
            self.requests = self.fallbacks = self.messages = self.nbytes = 0
            self.times = []


def count(device: Any, tally: Tally) -> None:
    """Count what a device's link says and hears about learning."""
    link = device._contact.links[0]
    sync, watch = link.sync, link.watch

    def counted_sync(request: Any, seconds: float) -> Any:
        tally.learned(len(request.to_bytes()))
        return sync(request, seconds)

    def counted_watch(request: Any) -> Any:
        stream = watch(request)
        read = stream._read

        def counted(data: bytes) -> Any:
            tally.learned(len(data))
            return read(data)

        stream._read = counted
        return stream

    link.sync, link.watch = counted_sync, counted_watch


class Client:
    """A device reduced to what it says and hears."""

    def __init__(self, port: int, tally: Tally, number: int) -> None:
        self.tally = tally
        self.number = number
        self.channel = grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]
        )
        self.sequence = 0
        self.random = np.random.default_rng(number)

    async def join(self) -> None:
        who = DeviceIdentity(f"light-{self.number}", "1", f"type-{self.number % 5}", "lab")
        call = self.channel.unary_unary("/cans.v1.Edge/Join")
        welcome = Welcome.from_bytes(await call(JoinRequest(who).to_bytes(), timeout=60))
        self.who, self.table, policy = who, welcome.table, welcome.terms.policy
        self.parts = [part for part in policy.parts if part.shared]
        self.keys = [pool_key(part, self.table, policy, who) for part in self.parts]

    async def run(self, rate: float, offset: float) -> None:
        watching = asyncio.create_task(self._watch()) if self.keys else None
        try:
            await asyncio.sleep(offset)
            while True:
                begin = time.perf_counter()
                await self._infer()
                took = time.perf_counter() - begin
                self.tally.requests += 1
                self.tally.times.append(took * 1e3)
                if self.keys and self.random.random() < UPLOADS:
                    await self._upload()
                await asyncio.sleep(max(1.0 / rate - took, 0.0))
        finally:
            if watching is not None:
                watching.cancel()

    async def _infer(self) -> None:
        header = InferHeader(
            self.who.device, "1", self.table.digest, self.table.version, 0, "float32",
            (TensorMeta("t0", "float32", (1, 64)),),
        )  # fmt: skip
        data = InferRequest(header, [memoryview(bytes(256))]).to_bytes()
        call = self.channel.unary_unary("/cans.v1.Edge/Infer")
        try:
            InferReply.from_bytes(await call(data, timeout=10))
        except Exception:
            self.tally.fallbacks += 1

    async def _upload(self) -> None:
        uploads = []
        for part, key in zip(self.parts, self.keys, strict=True):
            row = self.table.columns(part.explains)[1]
            ms = float(10.0 * row.sum() * (1 + 0.05 * self.random.standard_normal()))
            observed = SufficientStatistics.of(row, ms)
            uploads.append(Upload(self.who.device, "1", key, 0, self.sequence, observed))
        self.sequence += 1
        data = SyncRequest(tuple(uploads)).to_bytes()
        self.tally.learned(len(data))
        try:
            await self.channel.unary_unary("/cans.v1.Edge/Sync")(data, timeout=30)
        except Exception:
            self.tally.fallbacks += 1

    async def _watch(self) -> None:
        request = WatchRequest(self.who.device, dict.fromkeys(self.keys, (0, 0)))
        async for data in self.channel.unary_stream("/cans.v1.Edge/Watch")(request.to_bytes()):
            self.tally.learned(len(data))

    async def close(self) -> None:
        await self.channel.close()
