"""A server that hangs, is cut off or forgets its connections: answers come in time all the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pytest

from cans.live.device.device import Device
from cans.live.device.hooked import HookedDevice
from cans.live.device.hooks import Hooks
from cans.live.server.door import connections
from tests.live.attacks import Server
from tests.live.faults import GRACE_MS, wait_until
from tests.live.process import free_port, server
from tests.live.proxy import Proxy
from tests.live.running import running, terms
from tests.live.toy import example, toy

HEDGED = True
BLOCK = 0.03  # seconds of each of four blocks: 120 ms by itself, some 5 with the server
BACK_S = 3.0
KINDS = ("stopped", "cut", "half-open")
REAL, SLOWDOWN = "mobilenet_v2", 4.0  # a device worth helping on the same machine as its server


class Trouble(NamedTuple):
    """A server that can be made to hang, and a device that uses it."""

    device: Device
    hang: Callable[[], None]
    repair: Callable[[], None]
    inputs: dict[str, np.ndarray]


@contextmanager
def trouble(kind: str, folder: Path, policy: str) -> Iterator[Trouble]:
    port = free_port()
    process = server(port, f"sqlite:{folder / 'pools.sqlite'}", policy=policy)
    try:
        with closing(Proxy(port)) as proxy, Device(
            proxy.address, toy(block_seconds=BLOCK), "rpi5", state=folder / "d"
        ) as device:  # fmt: skip
            yield troubled(kind, device, proxy, process.child.pid, example())
            proxy.restore()
            os.kill(process.child.pid, signal.SIGCONT)
    finally:
        os.kill(process.child.pid, signal.SIGCONT)
        process.kill()


@contextmanager
def real_trouble(kind: str, folder: Path) -> Iterator[Trouble]:
    """The same with a real model, served as a user does; the device is four times as slow."""
    near = Server(REAL, folder / "server")
    try:
        with closing(Proxy(near.port)) as proxy, HookedDevice(
            proxy.address, REAL, name="honest", token="honest-token", state=folder / "d",
            hooks=Hooks(slowdown=SLOWDOWN),
        ) as device:  # fmt: skip
            inputs = {each.name: np.zeros(each.shape, np.float32) for each in device.model.inputs}
            yield troubled(kind, device, proxy, near.child.pid, inputs)
            proxy.restore()
            os.kill(near.child.pid, signal.SIGCONT)
    finally:
        os.kill(near.child.pid, signal.SIGCONT)
        near.stop()


def troubled(
    kind: str, device: Device, proxy: Proxy, pid: int, inputs: dict[str, np.ndarray]
) -> Trouble:
    def cut() -> None:
        proxy.silence()
        proxy.cut()

    hang, repair = {
        "stopped": (lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT)),
        "cut": (cut, proxy.restore),
        "half-open": (proxy.half_open, proxy.restore),
    }[kind]
    return Trouble(device, hang, repair, inputs)


def timed(found: Trouble) -> tuple[float, str]:
    """Milliseconds that the caller waited, and who answered."""
    start = time.perf_counter()
    result = found.device.run(found.inputs)
    waited = (time.perf_counter() - start) * 1e3
    return waited, result.report.answered_by


def by_server(found: Trouble) -> bool:
    return timed(found)[1] != "device"


def hang_once(found: Trouble, local_ms: float, grace_ms: float = 0.0) -> tuple[float, float]:
    """As `hang`; the slowest answer is in time."""
    slowest, back = hang(found)
    assert slowest < bar_ms(local_ms) + grace_ms, (slowest, local_ms)
    return slowest, back


def bar_ms(local_ms: float) -> float:
    return 2 * local_ms + 20


def hang(found: Trouble) -> tuple[float, float]:
    """The slowest of some answers while the server hangs, and seconds until it is used again."""
    wait_until(lambda: by_server(found), 30.0)
    found.hang()
    slowest = max(timed(found)[0] for _ in range(5))
    time.sleep(0.3)
    slowest = max(slowest, timed(found)[0])
    found.repair()
    start = time.perf_counter()
    wait_until(lambda: by_server(found), 30.0)
    return slowest, time.perf_counter() - start


def local_ms(found: Trouble) -> float:
    model = found.device.model
    runs = [model.executor.run_front(model.last, found.inputs) for _ in range(5)]
    return median(each.seconds for each in runs) * 1e3


@pytest.mark.parametrize("kind", KINDS)
def test_answers_come_in_time(tmp_path: Path, kind: str) -> None:
    """Beside other tests: with grace for a machine that wakes its threads late."""
    with trouble(kind, tmp_path, "offload") as found:
        for _ in range(2):
            _, back = hang_once(found, local_ms(found), GRACE_MS)
            assert back < BACK_S + 1.0


def test_connections_lost_without_a_word_do_not_shut_their_device_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's side of them stays open for as long as its keepalive takes."""
    monkeypatch.setattr(connections, "MOST_OF_ONE", 2)
    monkeypatch.setattr(connections, "GRACE_SECONDS", 0.3)
    model = toy(block_seconds=BLOCK)
    with running(toy(), terms=terms("cans")) as near:
        port = int(near.address.rpartition(":")[2])
        with closing(Proxy(port)) as proxy, Device(
            proxy.address, model, "rpi5", state=tmp_path
        ) as device:  # fmt: skip
            found = Trouble(device, proxy.half_open, proxy.restore, example())
            for _ in range(4):
                _, back = hang_once(found, local_ms(found), GRACE_MS)
                assert back < BACK_S + 1.0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_times(tmp_path: Path, kind: str) -> None:
    """With the default policy."""
    with trouble(kind, tmp_path, "cans") as found:
        for _ in range(100):
            _, back = hang_once(found, local_ms(found))
            assert back < BACK_S


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_healthy_server_is_seldom_hedged(tmp_path: Path) -> None:
    with trouble("stopped", tmp_path, "cans") as found:
        wait_until(lambda: by_server(found), 30.0)
        assert needlessly_hedged(found) <= 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_times_with_a_real_model(tmp_path: Path, kind: str) -> None:
    """With default options, and what it took told (`pytest -s`)."""
    with real_trouble(kind, tmp_path) as found:
        slowest, back, local = [], [], []
        for _ in range(100):
            local.append(local_ms(found))
            took, seconds = hang(found)
            slowest.append(took)
            back.append(seconds)
        late = [(took, own) for took, own in zip(slowest, local, strict=True)
                if took >= bar_ms(own)]  # fmt: skip
        print(f"\n{kind}: local {median(local):.1f} ms, slowest answers {median(slowest):.1f} "
              f"(worst {max(slowest):.1f}) ms, {len(late)} of 100 above the bar, back after "
              f"{median(back):.2f} (worst {max(back):.2f}) s")  # fmt: skip
        assert not late
        assert max(back) < BACK_S


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_healthy_server_of_a_real_model_is_seldom_hedged(tmp_path: Path) -> None:
    with real_trouble("stopped", tmp_path) as found:
        wait_until(lambda: by_server(found), 30.0)
        hedged = needlessly_hedged(found)
        print(f"\n{hedged} of 1000 hedged")
        assert hedged <= 20


def needlessly_hedged(found: Trouble) -> int:
    reports = [found.device.run(found.inputs).report for _ in range(1000)]
    return sum("by itself" in each.why or bool(each.fallback) for each in reports)
