"""A running device whose server begins to lie: it answers, stays small, and comes back.

Each lie of which devices died or never came back is told by a server between them and a real one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from cans.errors import CansError, ModelError
from cans.learning import Hyperparameters
from cans.live.device.device import Device
from cans.live.device.hooked import HookedDevice
from cans.live.device.hooks import Hooks
from cans.live.device.servers.route import BreakerSettings
from cans.live.split import ModelFile
from cans.live.wire.messages import MOST_POOLS, PoolNews, PoolUpdate
from cans.live.wire.proto import edge
from cans.models.onnx import trial
from tests.live.faults import wait_until
from tests.live.mutating import MutatingServer
from tests.live.onnx_models import convolutions, endless
from tests.live.running import Running, running, terms
from tests.live.test_moving import served
from tests.live.toy import example, toy

Lie = Callable[[Any], None]
EAGER = terms("cans", hyperparameters=Hyperparameters(offline_runs=2, alpha=1e-6), fresh_pools=True)
IMPATIENT = BreakerSettings(failures=1, first_wait=0.02, longest_wait=0.05)
A_MEGABYTE = 1 << 20
REPLIES = {
    "Join": edge.Welcome, "Infer": edge.InferReply, "Sync": edge.SyncReply, "Watch": edge.PoolNews
}  # fmt: skip


class LyingServer(MutatingServer):
    """Says what it is told to instead of the truth, to these methods."""

    def __init__(self, target: str) -> None:
        super().__init__(target, 0)
        self.lies: dict[str, Lie] = {}
        self.flood: bytes | None = None  # news without an end
        self.told = 0

    def _said(self, method: str, reply: bytes) -> bytes:
        lie = self.lies.get(method)
        if lie is None:
            return reply
        message = REPLIES[method].FromString(reply)
        lie(message)
        self.told += 1
        return bytes(message.SerializeToString())

    def _watch(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        for reply in super()._watch(request, context) if self.flood is None else iter(int, 1):
            if self.flood is not None:
                self.told += 1
                yield self.flood
            else:
                assert isinstance(reply, bytes)
                yield reply


def nested(welcome: Any) -> None:
    welcome.hyperparameters = "[" * 200_000


def many_offline_runs(welcome: Any) -> None:
    given = json.loads(welcome.hyperparameters)
    welcome.hyperparameters = json.dumps({**given, "offline_runs": 1e9})


def of_60_megabytes(welcome: Any) -> None:
    welcome.server = "x" * (60 * A_MEGABYTE)


def of_another_age(reply: Any) -> None:
    """Pools of epoch 1e9: whoever believes them takes no honest one any more."""
    for each in (reply.header if isinstance(reply, edge.InferReply) else reply).pools:
        each.epoch = 10**9


@contextmanager
def lied_to(state: Path) -> Iterator[tuple[Running, LyingServer, HookedDevice]]:
    """A device that would offload, and the honest server behind the one that it talks to."""
    hooks = Hooks(force=0, breaker=IMPATIENT)
    with (
        running(toy(), terms=EAGER) as real,
        closing(LyingServer(real.address)) as server,
        HookedDevice(server.address, toy(), state=state, hooks=hooks) as device,
    ):
        yield real, server, device


def answers(device: Device) -> str:
    """Who gave the answer, which is right."""
    result = device.run(example())
    np.testing.assert_allclose(result.outputs["y"], example()["t0"] + 4, rtol=1e-6)
    return result.report.answered_by


def size_of(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


@pytest.mark.parametrize("lie", [nested, many_offline_runs, of_60_megabytes])
def test_a_welcome_that_cannot_be_used_is_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lie: Lie
) -> None:
    """A running device is told it when it joins again, answers by itself meanwhile, keeps none of
    it, and uses the server as soon as that is honest."""
    caplog.set_level(logging.ERROR)
    with lied_to(tmp_path) as (_, server, device):
        assert answers(device) == server.address
        server.lies = {"Join": lie, "Infer": lambda reply: reply.ClearField("tensors")}
        while server.told < 5:  # one reply without outputs, and welcomes
            assert answers(device) == "device"
            time.sleep(0.01)
        assert size_of(tmp_path) < A_MEGABYTE
        server.lies = {}
        wait_until(lambda: answers(device) == server.address, 10.0)
    assert not [each for each in caplog.records if "failed at a task" in each.message]


@pytest.mark.parametrize("method", ["Join", "Infer", "Sync", "Watch"])
def test_an_epoch_beyond_reason_does_not_shut_honest_pools_out(tmp_path: Path, method: str) -> None:
    with lied_to(tmp_path / "a") as (real, server, device):
        answers(device)
        device.settle()
        server.lies = {method: of_another_age}

        def told() -> bool:
            answers(device)
            device.settle(0.2)
            if method == "Join":
                with suppress(CansError):
                    device.refresh()
            return server.told > (0 if method == "Watch" else 2)  # news is rare

        with Device(real.address, toy(), state=tmp_path / "b") as other:  # makes news
            wait_until(lambda: (other.infer(example()), told())[1], 20.0)
        before = dict(device._experience.known)
        assert max(epoch for epoch, _ in before.values()) < 1000
        server.lies = {}

        def heard() -> bool:
            answers(device)
            device.settle(0.2)
            known = device._experience.known
            return any(known[key] > before[key] for key in known)

        wait_until(heard, 20.0)


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / A_MEGABYTE


def test_a_flood_of_news(tmp_path: Path) -> None:
    """As fast as the connection takes them: the device holds the server back, and what it keeps of
    it is the latest of its own pools."""
    with lied_to(tmp_path) as (real, server, device):
        assert answers(device) == server.address
        device.settle()
        known = device._experience.known
        own = real.store().downloads(known)
        invented = [
            replace(own[0], key=own[0].key._replace(scope=f"network:{number}"))
            for number in range(MOST_POOLS - len(own) - 1)
        ]
        padding = edge.PoolNews(pools=[edge.Download(refused="x" * A_MEGABYTE)])
        news = PoolNews(tuple(PoolUpdate(each) for each in (*invented, *own)), 0.0)
        server.flood = news.to_bytes() + padding.SerializeToString()
        device._contact.stop_watching()
        device._session._watching = False
        device._session.tend([])  # it watches again
        wait_until(lambda: server.told > 3, 10.0)
        before, until = resident_mb(), time.monotonic() + 3.0
        while time.monotonic() < until:
            assert answers(device) == server.address
        assert resident_mb() < before + 150
        assert set(device._contact._news) <= set(known)
        assert set(device._experience.known) == set(known)


def test_a_fetched_model_that_loops_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is what was announced; that it never ends is seen in a process beside."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    honest = served(convolutions(tmp_path / "camera.onnx", layers=2, size=16))
    path = endless(tmp_path / "endless.onnx")
    data = path.read_bytes()
    digest = sha256(data).hexdigest()
    lying = replace(
        honest, digest=digest, table=replace(honest.table, digest=digest),
        files=(ModelFile("endless.onnx", path, len(data), digest),),
    )  # fmt: skip
    monkeypatch.setattr(trial, "SECONDS", 1.0)
    with running(lying) as server:
        start = time.monotonic()
        with pytest.raises(ModelError, match="no end after"):
            Device(server.address, state=tmp_path / "state")
        assert time.monotonic() - start < 30
