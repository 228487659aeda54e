"""`cans serve --cluster` as a user runs it: real devices, a real Ray, real processes that die."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from cans.errors import InputError
from cans.learning import DeviceIdentity
from cans.live.device.device import Device
from cans.live.wire.link import Link
from cans.live.wire.messages import JoinRequest
from tests.live.onnx_models import convolutions
from tests.live.postgres import Postgres
from tests.live.process import free_port

CANS = [sys.executable, "-m", "cans"]
PATIENCE_S = 180.0
PICTURE = {"input": np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)}


@contextmanager
def serving(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`cans serve` on a free port that has to end well; its address and its process."""
    address = f"127.0.0.1:{free_port()}"
    command = [*CANS, "serve", "--listen", address, *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = []
        while not lines or not lines[-1].startswith("serving "):
            lines.append(process.stderr.readline())
            assert lines[-1], f"{command} ended: {lines}"
        yield address, process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.1)


def right(device: Device, model: Path) -> bool:
    """One inference with the right answer; whether the cluster gave it."""
    session = onnxruntime.InferenceSession(str(model))
    expected = session.run(None, PICTURE)[0]
    np.testing.assert_allclose(device.infer(PICTURE)["scores"], expected, rtol=1e-4, atol=1e-5)
    return device.last is not None and device.last.answered_by != "device"


def joins(address: str, model: Path, state: Path) -> bool:
    """Whether the server has this model."""
    try:
        with Device(address, model, "rpi5", state=state):
            return True
    except InputError:
        return False


def replicas_below(ancestor: int) -> list[int]:
    """Processes that hold a replica, of the Ray that a process has started."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")")[1].split()[1])
        except (OSError, IndexError):  # ended meanwhile
            continue
        if words.startswith(b"ray::Replica"):
            found.append(int(folder.name))

    def below(process: int) -> bool:
        while process > 1:
            if process == ancestor:
                return True
            process = parents.get(process, 0)
        return False

    return [each for each in found if below(each)]


@pytest.mark.slow
def test_a_folder_on_a_cluster_of_its_own(tmp_path: Path) -> None:
    """Devices of the command line and of a program; a model that comes later; a dead replica."""
    models = tmp_path / "models"
    models.mkdir()
    first = convolutions(models / "first.onnx")
    words = ["--model-dir", str(models), "--cluster", "local", "--policy", "offload",
             "--store", "memory:", "--max-replicas", "1"]  # fmt: skip
    with serving(*words) as (address, process):
        done = subprocess.run(
            [*CANS, "device", "--server", address, "--type", "rpi5",
             "--count", "5", "--json", "--input", "random"],
            capture_output=True, text=True, timeout=PATIENCE_S,
            env=os.environ | {"HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert (document["answered"], document["failed"]) == (5, 0)
        with Device(address, first, "rpi5", state=tmp_path / "a") as device:
            until(lambda: right(device, first), "an answer of the cluster")
            (victim,) = replicas_below(process.pid)
            os.kill(victim, signal.SIGKILL)
            right(device, first)  # by whomever
            until(lambda: right(device, first), "a replica instead of the dead one")
            assert replicas_below(process.pid) != [victim]

        second = convolutions(tmp_path / "second.onnx", layers=2)
        shutil.copy(second, models)
        until(lambda: joins(address, second, tmp_path / "b"), "a model that came later")
        with Device(address, second, "rpi5", state=tmp_path / "b") as device:
            until(lambda: right(device, second), "an answer of its replica")
        assert len(replicas_below(process.pid)) == 2
        (models / "first.onnx").unlink()
        until(lambda: len(replicas_below(process.pid)) == 1, "the end of its replica")
    until(lambda: not replicas_below(process.pid), "the end of all")


@contextmanager
def ray_head() -> Iterator[tuple[str, str]]:
    """A Ray cluster that exists; its address, and that for clients from elsewhere."""
    port, client = free_port(), free_port()
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray), "start", "--head", "--block", "--port", str(port), "--num-cpus", "4",
               "--ray-client-server-port", str(client),
               "--include-dashboard", "false", "--disable-usage-stats"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "Ray runtime started" in line:
                break
        yield f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


@pytest.mark.slow
def test_two_front_doors_on_one_store_and_one_cluster(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What devices of one door learned is there for a device of the other, and outlives the door;
    each has replicas of its own on the same nodes."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # of this user's other clusters: not touched
    model = convolutions(tmp_path / "small.onnx")
    with ray_head() as (head, _):
        words = ["--model", str(model), "--store", postgres.url, "--cluster", head,
                 "--max-replicas", "1"]  # fmt: skip
        with serving(*words) as (one, _):
            with (
                serving(*words) as (other, _),
                Device(other, model, "rpi5", name="a", state=tmp_path / "a") as device,
            ):
                for _ in range(30):
                    right(device, model)
                until(lambda: observations(one) > 0, "news of the other door")
            # It holds no back-end: so small a model it would soon run by itself.
            b = Device(f"{other},{one}", model, "rpi5", name="b", state=tmp_path / "b", local=False)
            with b as device:
                until(lambda: right(device, model), "an answer of the door that is left")


@pytest.mark.slow
def test_a_front_door_that_is_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    model = convolutions(tmp_path / "small.onnx")
    words = ["--model", str(model), "--store", "memory:", "--policy", "offload"]
    with (
        ray_head() as (_, client),
        serving(*words, "--cluster", client) as (address, _),
        Device(address, model, "rpi5", state=tmp_path / "a") as device,
    ):
        until(lambda: right(device, model), "an answer of the cluster")


def observations(address: str) -> int:
    """Of all pools that a server gives to a device which joins."""
    link = Link(address)
    try:
        welcome = link.join(JoinRequest(DeviceIdentity("c", "0", "rpi5")), PATIENCE_S)
    finally:
        link.close()
    return sum(each.download.statistics.count for each in welcome.pools)
