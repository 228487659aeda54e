"""What a caller waits is what its report says, and what is learned from it delays no answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cans
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.turns import Turns
from tests.live.running import running, terms
from tests.live.toy import example, toy

SLOW_S = 0.1  # that a step takes in these tests
CLOSE_MS = 50.0  # to what was waited, on a machine that is busy


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    with (
        running(toy(), terms=terms("cans")) as server,
        Device(server.address, toy(), state=tmp_path, hooks=Hooks(force=0)) as found,
    ):
        found.run(example())
        found.settle()
        yield found


def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any) -> Any:
        time.sleep(SLOW_S)
        return function(*arguments)

    return slow


class SlowInput:
    """As of a camera: it becomes an array while the caller waits."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        time.sleep(SLOW_S)
        found: np.ndarray[Any, Any] = example()["t0"]
        return found


def run(device: cans.Device, inputs: Any) -> cans.Result:
    return device.run(inputs)


def run_in_a_worker(device: cans.Device, inputs: Any) -> cans.Result:
    agent = device._agent
    assert agent is not None
    agent.has_time_for = lambda _: False  # type: ignore[method-assign]
    return device.run(inputs)


def arun(device: cans.Device, inputs: Any) -> cans.Result:
    return asyncio.run(device.arun(inputs))


def stream(device: cans.Device, inputs: Any) -> cans.Result:
    return next(iter(device.stream([inputs])))


WAYS = (run, run_in_a_worker, arun, stream)
Way = Callable[[cans.Device, Any], cans.Result]


def timed(way: Way, device: cans.Device, inputs: Any) -> tuple[float, cans.Report]:
    start = time.perf_counter()
    result = way(device, inputs)
    return (time.perf_counter() - start) * 1e3, result.report


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_before_the_turn_was_waited_too(device: Device, way: Way) -> None:
    waited, report = timed(way, device, SlowInput())
    assert waited > SLOW_S * 1e3
    assert abs(waited - report.total_ms) < CLOSE_MS
    assert report.wait_ms > SLOW_S * 1e3 - 1


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_after_a_reply_was_waited_and_is_not_of_the_link(
    device: Device, way: Way
) -> None:
    flying = device._requests._in_flight
    flying.ended = slowly(flying.ended)  # type: ignore[method-assign]
    waited, report = timed(way, device, example())
    assert waited > SLOW_S * 1e3
    assert abs(waited - report.total_ms) < CLOSE_MS
    assert report.link_ms + report.server_ms < waited - SLOW_S * 1e3 + 1


class Broken:
    """A call that no server answers."""

    def result(self, _: float | None = None) -> None:
        raise cans.Unreachable("the link is broken")


def test_what_comes_after_a_fall_back_was_waited(device: Device) -> None:
    flying, link = device._requests._in_flight, device._contact.links[0]
    link.infer = lambda *_: Broken()  # type: ignore[assignment,method-assign,return-value]
    flying.ended = slowly(flying.ended)  # type: ignore[method-assign]
    waited, report = timed(run, device, example())
    assert report.fallback
    assert waited > SLOW_S * 1e3
    assert abs(waited - report.total_ms) < CLOSE_MS


def test_what_comes_after_a_local_run_was_waited(device: Device) -> None:
    device.hooks.force = device.model.last
    turns = device._turns
    turns.give_back = slowly(turns.give_back)  # type: ignore[method-assign]
    waited, report = timed(run, device, example())
    assert report.answered_by == "device"
    assert waited > SLOW_S * 1e3
    assert abs(waited - report.total_ms) < CLOSE_MS


def test_a_blocked_event_loop_keeps_nobody_else_waiting(device: Device) -> None:
    """The agent learns of an answer when its caller has it; other callers do not wait for that."""
    others: list[float] = []

    def other() -> None:
        start = time.perf_counter()
        device.run(example())
        assert device.last is not None
        others.append(time.perf_counter() - start)

    async def main() -> None:
        answer = asyncio.create_task(device.arun(example()))
        await asyncio.sleep(0)  # it is asked for
        thread = threading.Thread(target=other)
        time.sleep(SLOW_S)  # and there, but nobody takes it
        thread.start()
        thread.join(30)
        assert (await answer).report.answered_by

    asyncio.run(main())
    assert others
    assert others[0] < 5.0  # far less than the deadline


def test_an_answer_that_nobody_took_is_learned_from_when_the_device_closes(
    device: Device,
) -> None:
    async def main() -> None:
        answer = asyncio.create_task(device.arun(example()))
        await asyncio.sleep(0)
        time.sleep(SLOW_S)
        device.close()
        assert device._experience.state.inferences == 2
        await answer

    asyncio.run(main())


# --- the disk ---


def test_the_next_request_does_not_wait_for_the_disk(device: Device) -> None:
    file = device._file
    assert file is not None
    file.keep = slowly(file.keep)  # type: ignore[method-assign]
    device.run(example())
    report = device.run(example()).report
    assert report.wait_ms < SLOW_S * 1e3 / 2


def test_what_was_learned_is_soon_on_the_disk(device: Device) -> None:
    file = device._file
    assert file is not None
    device.run(example())
    until = time.monotonic() + 10
    while True:
        kept = file.load()
        if kept is not None and kept.inferences == 2:
            break
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_killed_device_loses_one_observation_at_most(device: Device) -> None:
    """Everything before the last one is on the disk when more is learned."""
    file, learn = device._file, device._experience._learn
    assert file is not None
    on_disk: list[int] = []

    def learned(*arguments: Any) -> Any:
        kept = file.load()
        assert kept is not None
        on_disk.append(kept.inferences)
        return learn(*arguments)

    device._experience._learn = learned  # type: ignore[method-assign]
    for _ in range(10):
        device.run(example())
    device.settle()
    assert on_disk == list(range(1, 11))


# --- turns ---


def test_the_agent_sleeps_until_it_is_woken_or_waited_for() -> None:
    turns, done = Turns(), threading.Semaphore(0)

    def agent() -> None:
        while not turns.closed:
            for work in turns.next(None)[0]:
                work()
            turns.worked()

    thread = threading.Thread(target=agent, daemon=True)
    thread.start()
    turns.leave(done.release)  # type: ignore[arg-type]
    assert not done.acquire(timeout=SLOW_S)
    turns.wake_agent()
    assert done.acquire(timeout=10)
    turns.leave(done.release)  # type: ignore[arg-type]
    with turns.turn(time.monotonic() + 10):  # what was left before it came is done
        assert done.acquire(blocking=False)
    turns.close()
    thread.join(10)
