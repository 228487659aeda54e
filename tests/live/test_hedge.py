"""A late server and a device that begins to finish by itself: the first answer wins."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cans.errors import DeadlineExceeded
from cans.live.device.deadline import LEAST, Abandoned, Abandonment, Patience
from cans.live.device.device import Device
from cans.live.device.hedge import Hedger
from cans.live.split import SplitModel
from tests.live.faults import wait_until
from tests.live.ledger import Ledger, check_conservation
from tests.live.process import eager
from tests.live.proxy import Proxy
from tests.live.running import running, terms
from tests.live.toy import ToyExecutor, example, toy

BLOCK = 0.1  # seconds of each of four blocks: the device finishes in 0.4 s
DEADLINE_MS = 1200.0  # it begins 0.6 s after the request, and is done after 1.0 s


class Blocks:
    """Which blocks a toy model has run, and whether two ever ran at a time."""

    def __init__(self, model: SplitModel) -> None:
        assert isinstance(model.executor, ToyExecutor)
        self.begun = 0
        self.overlaps = 0
        self._active = 0
        self._lock = threading.Lock()
        run = model.executor._run

        def counted(value: Any, first: int, last: int) -> Any:
            with self._lock:
                self._active += 1
                self.overlaps += self._active > 1
            try:
                return run(value, first, last)
            finally:
                with self._lock:
                    self._active -= 1

        model.executor._run = counted  # type: ignore[method-assign]

    def watch(self, device: Device) -> None:
        before = device.model.executor.on_block
        assert before is not None

        def hook(name: str, thread_seconds: float, wall_seconds: float) -> None:
            self.begun += 1
            before(name, thread_seconds, wall_seconds)

        device.model.executor.on_block = hook


def late(seconds: float) -> SplitModel:
    """The server's copy: its back-end takes so long."""
    return toy(block_seconds=seconds / 4)


def test_an_answer_that_comes_before_the_device_is_done_wins(tmp_path: Path) -> None:
    model, book = toy(block_seconds=BLOCK), Ledger()
    blocks = Blocks(model)
    with running(late(0.72), terms=terms("offload")) as server, Device(
        server.address, model, state=tmp_path, stopwatch=book
    ) as device:  # fmt: skip
        blocks.watch(device)
        for turn in range(2):
            start = time.perf_counter()
            outputs = device.infer(example(), deadline_ms=DEADLINE_MS)
            taken = time.perf_counter() - start
            np.testing.assert_allclose(outputs["y"], example()["t0"] + 4, rtol=1e-6)
            assert 0.7 < taken < 1.0
            assert device.last is not None
            assert device.last.answered_by == server.address
            assert "begun to finish by itself" in device.last.why
            assert not device.last.fallback
            assert device.last.server_ms > 700
            device.settle()
            assert len(book.rounds) == turn + 1
            assert 1 <= blocks.begun <= 3 * (turn + 1)  # it stopped after the block it was in
        assert blocks.overlaps == 0
        (_, learned), _ = book.rounds
        assert learned.server is not None
        assert learned.server > 700  # also that the server was slow has been learned
        assert device._agent is not None
        assert device._agent.failures == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_device_wins_over_an_answer_that_is_later(tmp_path: Path, asynchronous: bool) -> None:
    model, book = toy(block_seconds=BLOCK), Ledger()
    blocks = Blocks(model)
    with running(late(1.6), terms=terms("offload")) as server, Device(
        server.address, model, state=tmp_path, stopwatch=book
    ) as device:  # fmt: skip
        blocks.watch(device)
        start = time.perf_counter()
        if asynchronous:
            outputs = asyncio.run(device.ainfer(example(), deadline_ms=DEADLINE_MS))
        else:
            outputs = device.infer(example(), deadline_ms=DEADLINE_MS)
        assert 0.9 < time.perf_counter() - start < DEADLINE_MS / 1e3
        np.testing.assert_allclose(outputs["y"], example()["t0"] + 4, rtol=1e-6)
        assert device.last is not None
        assert device.last.answered_by == "device"
        assert "in time" in device.last.fallback
        device.settle()
        assert blocks.begun == 4  # once
        ((_, learned),) = book.rounds
        assert learned.front is not None
        assert (learned.link, learned.server) == (None, None)
        assert device._agent is not None
        assert device._agent.failures == 1


def test_a_request_that_fails_when_the_device_has_begun(tmp_path: Path) -> None:
    """What was begun is waited for, not done again."""
    model = toy(block_seconds=BLOCK)
    blocks = Blocks(model)
    with running(late(1.6), terms=terms("offload")) as server:
        proxy = Proxy(server.server.port)
        with Device(proxy.address, model, state=tmp_path) as device:
            blocks.watch(device)
            threading.Timer(0.8, proxy.cut).start()
            outputs = device.infer(example(), deadline_ms=DEADLINE_MS)
            np.testing.assert_allclose(outputs["y"], example()["t0"] + 4, rtol=1e-6)
            assert device.last is not None
            assert "does not answer" in device.last.fallback
            assert blocks.begun == 4
            assert blocks.overlaps == 0
        proxy.close()


def test_neither_is_in_time(tmp_path: Path) -> None:
    model = toy(block_seconds=BLOCK)
    with running(late(1.6), terms=terms("offload")) as server, Device(
        server.address, model, state=tmp_path
    ) as device:  # fmt: skip
        model.executor.block_seconds = 1.0  # type: ignore[attr-defined]
        start = time.perf_counter()
        with pytest.raises(DeadlineExceeded):
            device.infer(example(), deadline_ms=DEADLINE_MS)
        assert time.perf_counter() - start < DEADLINE_MS / 1e3 + 0.1
        model.executor.block_seconds = 0.0  # type: ignore[attr-defined]
        device.infer(example(), deadline_ms=5000)  # once the abandoned block is over
        assert device._rounds._hedger._running is None


def test_the_books_balance_under_hedges(tmp_path: Path) -> None:
    """Answers before, during and after the device's own run, one after the other."""
    model, server_model, book = toy(block_seconds=0.02), toy(), Ledger()
    with running(server_model, terms=eager()) as server:
        with Device(
            server.address, model, "rpi5", state=tmp_path, stopwatch=book, deadline_ms=300.0
        ) as device:
            device.testbed(force=0)
            for turn in range(12):
                server_model.executor.block_seconds = (0.0, 0.05, 0.2)[turn % 3]  # type: ignore[attr-defined]
                outputs = device.infer(example(seed=turn))
                np.testing.assert_allclose(outputs["y"], example(seed=turn)["t0"] + 4, rtol=1e-6)
                if turn % 3 == 2:
                    wait_until(lambda: server.server.workers.admission.inside == 0)
            device.settle()
        assert len(book.rounds) == 12
        check_conservation(server.store(), [device], [book])


# --- the hedger alone ---


def test_requests_in_time_wake_nobody() -> None:
    hedger, notified = Hedger(Abandonment()), 0
    notify = hedger._condition.notify

    def counted(n: int = 1) -> None:
        nonlocal notified
        notified += 1
        notify(n)

    hedger._condition.notify = counted  # type: ignore[method-assign]
    for _ in range(500):
        with hedger.arm(5.0, lambda: None) as hedge:
            pass
        assert hedge.done is None
    assert notified == 1  # the first
    hedger.close()


def test_a_hedge_is_done_once() -> None:
    """However the two threads meet: by the hedger, or here; never by both, never by none."""
    hedger, done = Hedger(Abandonment()), []
    for turn in range(300):
        with hedger.arm((turn % 5) * 2e-4, lambda: done.append(threading.get_ident())) as hedge:
            time.sleep((turn % 7) * 1e-4)
            hedge.result(time.monotonic() + 5.0)
        hedger.rest(time.monotonic() + 5.0)
        assert len(done) == turn + 1
    assert len(set(done)) == 2
    hedger.close()


def test_a_dropped_hedge_stops_and_its_error_is_told() -> None:
    abandonment = Abandonment()
    hedger, stopped = Hedger(abandonment), threading.Event()

    def work() -> None:
        try:
            while True:
                time.sleep(0.001)
                abandonment.check()
        except Abandoned:
            stopped.set()
            raise

    with hedger.arm(0.0, work) as hedge:
        wait_until(lambda: hedge.done is not None)
    assert stopped.wait(2.0)
    with hedger.arm(0.0, lambda: 1 / 0) as failing:
        wait_until(lambda: failing.done is not None)
        with pytest.raises(ZeroDivisionError):
            failing.result(time.monotonic() + 1.0)
    hedger.close()


def test_patience() -> None:
    now = time.monotonic()
    own, none = Patience.by(now + 10.0, 2.0)
    assert own == pytest.approx(10.0 - 0.02 - 0.5 - 2.5, abs=0.01)
    assert none == pytest.approx(own + 2.0)
    assert Patience.by(now + 1.0, 2.0).until_own == LEAST
    assert Patience.by(now + 10.0, None).until_none == pytest.approx(10.0, abs=0.01)
