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

import pytest

from cans.live.device.device import Device
from cans.live.server.door import connections
from tests.live.faults import GRACE_MS, wait_until
from tests.live.process import Process, free_port, server
from tests.live.proxy import Proxy
from tests.live.running import running, terms
from tests.live.toy import example, toy

HEDGED = True
BLOCK = 0.03  # seconds of each of four blocks: 120 ms by itself, some 5 with the server
BACK_S = 3.0
KINDS = ("stopped", "cut", "half-open")


class Trouble(NamedTuple):
    """A server that can be made to hang, and a device that uses it."""

    device: Device
    hang: Callable[[], None]
    repair: Callable[[], None]


@contextmanager
def trouble(kind: str, folder: Path, policy: str) -> Iterator[Trouble]:
    port = free_port()
    process = server(port, f"sqlite:{folder / 'pools.sqlite'}", policy=policy)
    proxy = Proxy(port)
    try:
        with Device(proxy.address, toy(block_seconds=BLOCK), "rpi5", state=folder / "d") as device:
            if kind == "stopped":
                yield Trouble(device, lambda: _signal(process, signal.SIGSTOP),
                              lambda: _signal(process, signal.SIGCONT))  # fmt: skip
            elif kind == "cut":
                yield Trouble(device, lambda: (proxy.silence(), proxy.cut())[0], proxy.restore)  # type: ignore[func-returns-value]
            else:
                yield Trouble(device, proxy.half_open, proxy.restore)
            proxy.restore()
            _signal(process, signal.SIGCONT)
    finally:
        _signal(process, signal.SIGCONT)
        proxy.close()
        process.kill()


def _signal(process: Process, number: signal.Signals) -> None:
    os.kill(process.child.pid, number)


def timed(device: Device) -> tuple[float, str]:
    """Milliseconds that the caller waited, and who answered."""
    start = time.perf_counter()
    result = device.run(example())
    waited = (time.perf_counter() - start) * 1e3
    return waited, result.report.answered_by


def by_server(device: Device) -> bool:
    return timed(device)[1] != "device"


def hang_once(found: Trouble, local_ms: float, grace_ms: float = 0.0) -> tuple[float, float]:
    """The slowest of some answers while the server hangs, and seconds until it is used again."""
    wait_until(lambda: by_server(found.device), 30.0)
    found.hang()
    slowest = max(timed(found.device)[0] for _ in range(5))
    time.sleep(0.3)
    slowest = max(slowest, timed(found.device)[0])
    found.repair()
    start = time.perf_counter()
    wait_until(lambda: by_server(found.device), 30.0)
    assert slowest < 2 * local_ms + 20 + grace_ms, (slowest, local_ms)
    return slowest, time.perf_counter() - start


def local_ms(device: Device) -> float:
    runs = [device.model.executor.run_front(device.model.last, example()) for _ in range(5)]
    return median(each.seconds for each in runs) * 1e3


@pytest.mark.parametrize("kind", KINDS)
def test_answers_come_in_time(tmp_path: Path, kind: str) -> None:
    """Beside other tests: with grace for a machine that wakes its threads late."""
    with trouble(kind, tmp_path, "offload") as found:
        for _ in range(2):
            _, back = hang_once(found, local_ms(found.device), GRACE_MS)
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
            found = Trouble(device, proxy.half_open, proxy.restore)
            for _ in range(4):
                _, back = hang_once(found, local_ms(device), GRACE_MS)
                assert back < BACK_S + 1.0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_times(tmp_path: Path, kind: str) -> None:
    """With the default policy."""
    with trouble(kind, tmp_path, "cans") as found:
        for _ in range(100):
            _, back = hang_once(found, local_ms(found.device))
            assert back < BACK_S


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_healthy_server_is_seldom_hedged(tmp_path: Path) -> None:
    with trouble("stopped", tmp_path, "cans") as found:
        wait_until(lambda: by_server(found.device), 30.0)
        reports = [found.device.run(example()).report for _ in range(1000)]
        hedged = sum("by itself" in each.why or bool(each.fallback) for each in reports)
        assert hedged <= 20
