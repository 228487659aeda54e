"""Several requests of one device on their way, and a server from Python."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cans
from cans.learning import Hyperparameters
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.stream import Stream
from program.networks import classifier
from tests.live.certificates import Authority
from tests.live.ledger import Ledger, check_conservation
from tests.live.process import eager
from tests.live.proxy import Proxy
from tests.live.running import running, terms
from tests.live.toy import example, toy

DELAY = 0.2  # seconds of the link


def check(result: cans.Result, seed: int) -> None:
    np.testing.assert_allclose(result.outputs["y"], example(seed=seed)["t0"] + 4, rtol=1e-6)


def watched(device: Device) -> list[int]:
    """How many requests were on the link whenever another one was."""
    requests, seen = device._requests, [0]
    finish, inside = requests.finish, [0]

    def counted(asked: Any) -> Any:
        inside[0] += 1
        seen.append(inside[0])
        try:
            return finish(asked)
        finally:
            inside[0] -= 1

    requests.finish = counted  # type: ignore[method-assign]
    return seen


def test_a_stream_overlaps_and_keeps_its_order(tmp_path: Path) -> None:
    with running(toy(), terms=terms("offload")) as server:
        proxy = Proxy(server.server.port)
        proxy.reply_delay = DELAY
        with Device(proxy.address, toy(), state=tmp_path) as device:
            device.infer(example())
            on_their_way = watched(device)
            frames = [example(seed=seed) for seed in range(16)]
            for seed, result in enumerate(device.stream(frames, in_flight=4)):
                check(result, seed)
                assert result.report.answered_by == proxy.address
            assert max(on_their_way) == 4
        proxy.close()


def test_async_for_and_overlapping_calls(tmp_path: Path) -> None:
    with running(toy(), terms=terms("offload")) as server:
        proxy = Proxy(server.server.port)
        proxy.reply_delay = DELAY
        with Device(proxy.address, toy(), state=tmp_path) as device:

            async def use() -> None:
                seed = 0
                async for result in device.stream(map(example_of, range(6)), in_flight=3):
                    check(result, seed)
                    seed += 1
                assert seed == 6
                on_their_way = watched(device)
                await asyncio.gather(*(device.ainfer(example()) for _ in range(8)))
                assert max(on_their_way) > 2

            asyncio.run(use())
        proxy.close()


def example_of(seed: int) -> Any:
    return example(seed=seed)


def test_the_latest_frame_of_a_camera(tmp_path: Path) -> None:
    def camera() -> Any:
        for seed in range(50):
            time.sleep(0.01)
            yield example(seed=seed)

    with running(toy(block_seconds=0.02), terms=terms("offload")) as server, Device(
        server.address, toy(), state=tmp_path
    ) as device:  # fmt: skip
        stream = device.stream(camera(), in_flight=1, latest=True)
        answers = list(stream)
    assert 2 <= len(answers) < 40
    assert len(answers) + stream.dropped == 50
    check(answers[-1], 49)


class Plays:
    """Requests of a stream that are answered when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Future[int]] = []

    def submit(self, frame: int) -> Future[int]:
        answer: Future[int] = Future()
        answer.set_running_or_notify_cancel()
        self.asked.append(answer)
        return answer


def test_an_answer_that_is_there_is_handed_on_before_a_frame_is_taken() -> None:
    """A source slower than the answers must not hold them back for in_flight frames."""
    plays, taken = Plays(), []

    def source() -> Any:
        for number in range(3):
            taken.append(number)
            yield number

    def answered(frame: int) -> Future[int]:
        answer = plays.submit(frame)
        answer.set_result(frame)
        return answer

    results = iter(Stream(answered, source(), 3, False))
    assert [(next(results), len(taken)) for _ in range(3)] == [(0, 1), (1, 2), (2, 3)]


def test_the_answer_to_the_latest_frame_waits_for_no_other_and_the_camera_is_let_go() -> None:
    plays, shot, left = Plays(), threading.Event(), threading.Event()

    def camera() -> Any:
        yield 0
        shot.wait(30)  # no second frame until the test has had the first answer
        try:
            yield from range(1, 1_000_000_000)
        finally:
            left.set()

    stream = Stream(plays.submit, camera(), 3, True)
    results = iter(stream)

    def answer_it() -> None:
        while not plays.asked:
            time.sleep(0.001)
        plays.asked[0].set_result(7)

    threading.Thread(target=answer_it, daemon=True).start()
    assert next(results) == 7
    results.close()  # the loop is left: as `break` does it
    shot.set()
    assert left.wait(30)


def test_frames_are_taken_no_faster_than_answered(tmp_path: Path) -> None:
    taken: list[int] = []

    def source() -> Any:
        for seed in range(20):
            taken.append(seed)
            yield example(seed=seed)

    with running(toy(), terms=terms("offload")) as server, Device(
        server.address, toy(), state=tmp_path
    ) as device:  # fmt: skip
        for number, _ in enumerate(device.stream(source(), in_flight=3)):
            assert len(taken) <= number + 3


def test_a_killed_server_loses_no_frame_and_nothing_is_learned_twice(tmp_path: Path) -> None:
    book = Ledger()
    with running(toy(), terms=eager()) as server:
        proxy = Proxy(server.server.port)
        hooks = Hooks(stopwatch=book)
        with Device(proxy.address, toy(), "rpi5", state=tmp_path, hooks=hooks) as device:
            device.hooks.force = 0
            threading.Timer(0.1, proxy.cut).start()
            frames = [example(seed=seed) for seed in range(60)]
            for seed, result in enumerate(device.stream(frames, in_flight=4)):
                check(result, seed)
                time.sleep(0.003)
            device.settle()
        assert len(book.rounds) == 60
        check_conservation(server.store(), [device], [book])
        proxy.close()


def test_bad_streams(tmp_path: Path) -> None:
    with Device("127.0.0.1:1", toy(), state=tmp_path, connect_seconds=0.1) as device:
        with pytest.raises(cans.InputError):
            device.stream([], in_flight=0)
        with pytest.raises(cans.InputError):
            list(device.stream([{"t0": np.zeros(3, np.float32)}]))


def test_a_server_from_python(tmp_path: Path) -> None:
    with (
        cans.Server([toy()], policy="offload") as server,
        cans.Device(server.address, toy(), state=tmp_path) as device,
    ):
        result = device.run(example())
        assert result.report.answered_by == server.address
    with pytest.raises(cans.InputError):
        cans.Server([])
    with pytest.raises(cans.InputError):
        cans.Server([toy()], listen="nowhere")
    with pytest.raises(cans.InputError):
        cans.Server([toy()], workers=0)


def test_a_server_of_one_model_needs_no_list(tmp_path: Path) -> None:
    path = classifier(tmp_path / "classifier.onnx")
    with (
        cans.Server(path, codecs="float16") as server,
        cans.Device(server.address, path, state=tmp_path / "state") as device,
    ):
        assert device.joined
    with cans.Server("mobilenet_v2") as server:
        assert server.address.startswith("127.0.0.1:")


def test_a_server_from_python_with_tls_tokens_and_its_own_numbers(tmp_path: Path) -> None:
    authority, tokens = Authority(tmp_path), tmp_path / "tokens"
    tokens.write_text("camera secret\n")
    tokens.chmod(0o600)
    options = {"tls": cans.ServerTls(*authority.issue("server")), "token_file": tokens,
               "hyperparameters": Hyperparameters(ridge=0.3), "workers": 1}  # fmt: skip
    trust = cans.ClientTls(ca=authority.file)
    with cans.Server([toy()], policy="linucb", **options) as server:
        with cans.Device(server.address, toy(), name="camera", token="secret", tls=trust,
                         state=tmp_path / "a") as device:  # fmt: skip
            device.infer(example())
            assert device.joined
            learner = device._experience.learner
            assert learner is not None
            assert learner.hyperparameters.ridge == 0.3
        with pytest.raises(cans.InputError, match="refuses"):
            cans.Device(server.address, toy(), token="guess", tls=trust, state=tmp_path / "b")
