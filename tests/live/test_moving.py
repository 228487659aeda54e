"""A server gets a new model under an old name: running devices move over to it, or stay if told."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from cans.errors import InputError
from cans.learning import Choice, Hyperparameters, Latencies
from cans.live.device.device import Device
from cans.live.device.hooked import HookedDevice
from cans.live.device.hooks import Hooks
from cans.live.device.start.handover import Handover
from cans.live.device.timing import Measured, Offline
from cans.live.server.model_folder import ModelFolder
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from cans.live.wire.state import read
from tests.live.faults import wait_until
from tests.live.onnx_models import convolutions
from tests.live.process import free_port
from tests.live.running import Running, running, terms

PICTURE = {"input": np.random.default_rng(1).random((1, 3, 16, 16), np.float32)}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made(folder: Path, layers: int, name: str = "camera", size: int = 16) -> Path:
    folder.mkdir(exist_ok=True)
    return convolutions(folder / f"{name}.onnx", layers=layers, size=size)


def served(path: Path) -> SplitModel:
    return split(load_model(path, Cutting()), Cutting(), to_send=True)


def answer_of(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, PICTURE)[0]


class Asking:
    """Threads that infer all the time: every answer is the old model's or the new one's."""

    def __init__(self, device: Device, answers: list[np.ndarray]) -> None:
        self._device, self._answers = device, answers
        self.wrong: list[object] = []
        self.last: list[int] = []  # which model's answer
        self.worst_ms = 0.0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(how,)) for how in range(3)]
        for thread in self._threads:
            thread.start()

    def _ask(self, how: int) -> None:
        while not self._over.wait(0.005):
            begin = time.perf_counter()
            try:
                if how == 0:
                    found = self._device.infer(PICTURE)
                elif how == 1:
                    found = self._device.run(PICTURE["input"]).outputs
                else:
                    found = asyncio.run(self._device.ainfer(PICTURE))
            except Exception as error:
                self.wrong.append(error)
                return
            self.worst_ms = max(self.worst_ms, (time.perf_counter() - begin) * 1e3)
            output = next(iter(found.values()))
            of = [i for i, each in enumerate(self._answers) if np.allclose(output, each, atol=1e-5)]
            self.last.extend(of) if of else self.wrong.append(output)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def settled_on(asking: Asking, which: int) -> bool:
    return len(asking.last) > 10 and set(asking.last[-6:]) == {which}


@pytest.mark.parametrize("named", ["file", "name", "nothing"])
def test_a_running_device_moves_over_to_the_new_model(tmp_path: Path, named: str) -> None:
    """The server is restarted with another file; callers notice nothing but other answers."""
    old, new = made(tmp_path / "old", 3), made(tmp_path / "new", 5)
    listen = f"127.0.0.1:{free_port()}"
    source = {"file": old, "name": "camera", "nothing": None}[named]
    store = f"sqlite:{tmp_path / 'pools.sqlite'}"
    with running(served(old), terms=terms("cans"), listen=listen, store=store):
        device = Device(listen, source, name="d", state=tmp_path / "state")
        asking = Asking(device, [answer_of(old), answer_of(new)])
        wait_until(lambda: settled_on(asking, 0), 60.0)
    with running(served(new), terms=terms("cans"), listen=listen, store=store) as server:
        wait_until(lambda: settled_on(asking, 1), 60.0)
        wait_until(lambda: device.joined, 60.0)
        asking.close()
        assert asking.wrong == []
        assert device.model.digest == server.server.catalogue.models[0].digest
        device.settle()
        assert server.server.pools.merged > 0  # what it learns of the new model is shared
        device.close()
    kept = read((tmp_path / "state" / "state").read_bytes())
    assert {each.key.model for each in kept.records} == {device.model.digest}
    assert all(each.key.model != device.model.digest for each in kept.former)
    assert kept.former  # of the old model, should a server have it again
    with Device(listen, new, name="d", state=tmp_path / "state", connect_seconds=0.2) as again:
        assert again.model.digest == device.model.digest


def test_a_replaced_file_in_a_folder_is_noticed_by_devices_that_stay_local(tmp_path: Path) -> None:
    models = tmp_path / "models"
    old = made(tmp_path / "old", 3)
    made(models, 3)
    fresh = terms("cans", fresh_pools=True)
    server = Running.of(folder=ModelFolder(models, served), terms=fresh)
    try:
        with Device(server.address, "camera", state=tmp_path / "state") as device:
            wait_until(lambda: device._contact.watching, 60.0)
            new = made(tmp_path / "new", 6)
            new.replace(models / "camera.onnx")
            digest = device.model.digest
            wait_until(lambda: device.model.digest != digest, 60.0)
            wait_until(lambda: device.joined, 60.0)
            output = next(iter(device.infer(PICTURE).values()))
            np.testing.assert_allclose(output, answer_of(models / "camera.onnx"), atol=1e-5)
            assert not np.allclose(output, answer_of(old), atol=1e-5)
    finally:
        server.stop()


def test_an_old_file_starts_and_moves_over_unless_it_is_pinned(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.WARNING)
    old, new = made(tmp_path / "old", 3), made(tmp_path / "new", 4)
    digest = load_model(old, Cutting()).digest
    with running(served(new), terms=terms("cans")) as server:
        with Device(server.address, old, model_sha256=digest, state=tmp_path / "a") as pinned:
            wait_until(lambda: any("goes on alone" in each for each in caplog.messages), 60.0)
            output = next(iter(pinned.infer(PICTURE).values()))
            np.testing.assert_allclose(output, answer_of(old), atol=1e-5)
            assert pinned.model.digest == digest
            assert not pinned.joined
        with Device(server.address, old, state=tmp_path / "b") as device:
            wait_until(lambda: device.joined, 60.0)
            output = next(iter(device.infer(PICTURE).values()))
            np.testing.assert_allclose(output, answer_of(new), atol=1e-5)
        with pytest.raises(InputError, match="not --model-sha256"):
            Device(server.address, old, model_sha256="0" * 64, state=tmp_path / "c")
        with pytest.raises(InputError, match="refuses this device: no model"):
            Device(server.address, model_sha256=digest, state=tmp_path / "d")
        with pytest.raises(InputError, match="64 hexadecimal"):
            Device(server.address, model_sha256="abc", state=tmp_path / "e")
        with Device(
            server.address, model_sha256=load_model(new, Cutting()).digest, state=tmp_path / "f"
        ) as found:
            assert found.joined


def test_a_new_model_with_other_inputs_is_not_moved_to(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.WARNING)
    old, new = made(tmp_path / "old", 3), made(tmp_path / "new", 3, size=24)
    with (
        running(served(new), terms=terms("cans")) as server,
        Device(server.address, old, state=tmp_path / "state") as device,
    ):
        wait_until(lambda: any("keeps its model" in each for each in caplog.messages), 60.0)
        assert device.infer(PICTURE)
        assert device.model.digest == load_model(old, Cutting()).digest


def test_a_device_names_the_model_it_wants_from_a_server_with_several(tmp_path: Path) -> None:
    one, two = made(tmp_path, 3, "one"), made(tmp_path, 4, "two")
    with running(served(one), served(two), terms=terms("cans")) as server:
        with Device(server.address, "two", state=tmp_path / "a") as device:
            assert device.model.name == "two"
            output = next(iter(device.infer(PICTURE).values()))
            np.testing.assert_allclose(output, answer_of(two), atol=1e-5)
        with pytest.raises(InputError, match="there are: one, two"):
            Device(server.address, "three", state=tmp_path / "b")
        with pytest.raises(InputError, match="one, two"):
            Device(server.address, state=tmp_path / "c")
        server.stop()
        with Device(server.address, "two", state=tmp_path / "a", connect_seconds=0.2) as alone:
            assert alone.model.name == "two"  # from the cache, as the server had it


def test_a_handover_waits_for_those_inside_and_holds_up_the_rest() -> None:
    handover, order = Handover(), []
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with handover:
            inside.set()
            leave.wait()
            order.append("left")

    def come() -> None:
        with handover:
            order.append("came")

    first = threading.Thread(target=stay)
    first.start()
    inside.wait()
    with handover.alone(0.01) as is_alone:
        assert not is_alone
    second = threading.Thread(target=come)
    leave.set()
    with handover.alone(30.0) as is_alone:
        assert is_alone
        second.start()
        order.append("alone")
    first.join()
    second.join()
    assert order == ["left", "alone", "came"]


class CountedByModel:
    """A stopwatch that counts what it hands out for each model that its device has at the time."""

    def __init__(self) -> None:
        self.device: Device | None = None
        self.front: Counter[str] = Counter()
        self.offline_runs: Counter[str] = Counter()

    def latencies(self, choice: Choice, measured: Measured) -> Latencies:
        found = measured.latencies()
        if self.device is not None and found.front is not None and choice.point > 0:
            self.front[self.device.model.digest] += 1
        return found

    def offline(self, measured: Offline) -> Offline:
        if self.device is not None:
            self.offline_runs[self.device.model.digest] += len(measured)
        return measured


def test_nothing_learned_is_lost_or_counted_twice_there_and_back(tmp_path: Path) -> None:
    """From one model to another and back: every observation is in the pool of its own model, or in
    the buffer that the device keeps for it."""

    models = tmp_path / "models"
    variants = [made(tmp_path / f"v{i}", 3 + i).read_bytes() for i in range(2)]
    models.mkdir()
    (models / "camera.onnx").write_bytes(variants[0])
    watch = CountedByModel()
    eager = Hyperparameters(offline_runs=2, alpha=1e-6)
    server = Running.of(
        folder=ModelFolder(models, served),
        terms=terms("fedlinucb-dw", hyperparameters=eager, fresh_pools=True),
    )
    digests = [sha256(each).hexdigest() for each in variants]
    try:
        hooks = Hooks(stopwatch=watch)
        device = HookedDevice(
            server.address, "camera", "rpi5", state=tmp_path / "s", hooks=hooks, seed=1
        )
        watch.offline_runs[digests[0]] += 2  # before it was looked at
        watch.device = device
        with device:
            for which in (0, 1, 0):
                (models / "next").write_bytes(variants[which])
                (models / "next").replace(models / "camera.onnx")
                wait_until(
                    lambda wanted=which: device.model.digest == digests[wanted] and device.joined,
                    60.0,
                )
                for _ in range(8):
                    device.infer(PICTURE)
                device.settle()
        state = device._experience.state
        assert set(watch.front) == set(digests)
        for digest in digests:
            held = sum(
                account.pool.statistics.count
                for account in server.store().accounts()
                if (account.key.model, account.key.part) == (digest, "front")
            )
            unsent = sum(
                record.local.count
                for record in (*state.records, *state.former)
                if (record.key.model, record.key.part) == (digest, "front")
            )
            assert held + unsent == watch.front[digest] + watch.offline_runs[digest]
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_replaced_twenty_times_under_load(tmp_path: Path) -> None:
    """What docs/reliability.md counts (`-s` prints it)."""
    models = tmp_path / "models"
    paths = [made(tmp_path / f"v{i}", 3 + i) for i in range(2)]
    answers, variants = [answer_of(each) for each in paths], [each.read_bytes() for each in paths]
    models.mkdir()
    (models / "camera.onnx").write_bytes(variants[0])
    fresh = terms("cans", fresh_pools=True)
    server = Running.of(folder=ModelFolder(models, served), terms=fresh)
    try:
        with Device(server.address, "camera", state=tmp_path / "s") as device:
            asking = Asking(device, answers)
            for turn in range(1, 21):
                (models / "next").write_bytes(variants[turn % 2])
                (models / "next").replace(models / "camera.onnx")
                wait_until(lambda wanted=turn % 2: settled_on(asking, wanted), 60.0)
            asking.close()
        print(f"20 moves, {len(asking.last)} answers, worst {asking.worst_ms:.0f} ms")
        assert asking.wrong == []
    finally:
        server.stop()
