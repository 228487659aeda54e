"""`cans serve` and `cans device`, as a user runs them, with a real ONNX model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from cans.cli import main
from cans.live.device.device import Device
from tests.live.onnx_models import convolutions, with_weights_beside
from tests.live.process import free_port

CANS = [sys.executable, "-m", "cans"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return convolutions(tmp_path / "small.onnx")


def run_cans(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": ""}
    env |= {"XDG_CACHE_HOME": "", "CANS_CACHE": ""}
    env.pop("GRPC_VERBOSITY", None)
    return subprocess.run([*CANS, *words], capture_output=True, text=True, env=env, timeout=60)


@pytest.fixture
def server(model: Path, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    words = [
        "serve", "--model", str(model), "--listen", f"127.0.0.1:{port}", "--store",
        f"sqlite:{tmp_path / 'pools.sqlite'}", "--codec", "float32", "--codec", "uint8",
        "--log", "json", "--metrics", f"127.0.0.1:{free_port()}",
    ]  # fmt: skip
    process = subprocess.Popen([*CANS, *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = [process.stderr.readline(), process.stderr.readline()]
    assert json.loads(lines[0])["event"] == "listening", lines
    yield f"127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    process.stderr.close()


def test_a_device_needs_no_copy_of_the_model(server: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    found = run_cans(
        "device", "--server", server, "--type", "rpi5", "--count", "6", "--json", "--seed", "1",
        "--log-jsonl", str(log), home=tmp_path,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["answered"] == 6
    assert document["failed"] == 0
    assert (document["joined"], document["model"]) == (True, "small")
    assert len(document["last"]["choices"]) > 4
    assert len(log.read_text().splitlines()) == 6
    assert list((tmp_path / ".cache/cans/models").glob("*.onnx"))
    again = run_cans("device", "--server", server, "--type", "rpi5", home=tmp_path)
    assert again.returncode == 0
    assert again.stdout.startswith("point ")


def test_nor_of_one_with_weights_in_other_files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = with_weights_beside(tmp_path / "model" / "spread.onnx")
    port = free_port()
    words = ["serve", "--model", str(path), "--listen", f"127.0.0.1:{port}", "--store", "memory:"]
    process = subprocess.Popen([*CANS, *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "listening" in process.stderr.readline()
    found = run_cans(
        "device", "--server", f"127.0.0.1:{port}", "--count", "3", "--json", home=tmp_path
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    process.stderr.close()
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert (document["answered"], document["joined"], document["refused"]) == (3, True, 0)
    assert document["model"] == "spread"
    assert len(list((tmp_path / ".cache/cans/models").glob("*/*.bin"))) == 1
    assert len(list((tmp_path / ".cache/cans/models").glob("*/layers/*.bin"))) == 4


def test_split_equals_whole(server: str, model: Path, tmp_path: Path) -> None:
    value = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    (whole,) = onnxruntime.InferenceSession(str(model)).run(None, {"input": value})
    with Device(server, model, "rpi5", state=tmp_path / "state", seed=3) as device:
        codecs = set()
        for _ in range(25):
            outputs = device.infer({"input": value})
            assert device.last is not None
            codecs.add(device.last.codec)
            exact = device.last.codec == "float32"
            np.testing.assert_allclose(outputs["scores"], whole, atol=1e-5 if exact else 0.3)
        assert codecs


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["serve", "--model", "nothing.onnx"], 2, "no file"),
        (["serve", "--model", "resnet50", "--policy", "oracle"], 2, "simulation only"),
        (["serve", "--model", "resnet50", "--policy", "neurosurgeon"], 2, "known beforehand"),
        (["serve", "--model", "resnet50", "--policy", "x"], 2, "unknown policy"),
        (["serve", "--model", "resnet50", "--delivery", "x"], 2, "--delivery"),
        (["serve", "--model", "resnet50", "--tls-cert", "x"], 2, "--tls-key"),
        (["serve", "--model", "resnet50", "--shape", "x"], 2, "--shape"),
        (["serve", "--model", "resnet50", "--max-replicas", "2"], 2, "needs --cluster"),
        (["device", "--server", "nowhere"], 2, "HOST:PORT"),
        (["device", "--server", "a:1", "--count", "0"], 2, "--count"),
        (["serve", "--model", "resnet50", "--log", "xml"], 2, "json, text"),
        (
            ["serve", "--model", "mobilenet_v2", "--listen", "127.0.0.1:0", "--store", "sqlite:"],
            2,
            "names no file",
        ),
        (["device", "--server", "a:1", "--interval-ms", "inf"], 2, "--interval-ms"),
        (["device", "--server", "a:1", "--interval-ms", "-1"], 2, "--interval-ms"),
        (["device", "--server", "a:1", "--seed", "-1"], 2, "--seed"),
        (["device", "--server", "a:1", "--name", "a\nb"], 2, "short printable name"),
        (["device", "--server", "a:http"], 2, "HOST:PORT"),
        (["device", "--server", "a:1", "--exit", "x"], 2, "--exit"),
        (["device", "--server", "127.0.0.1:1", "--model", "nothing.onnx"], 2, "nothing.onnx"),
        (["device", "--server", "127.0.0.1:1"], 1, "no server answers"),
    ],
)
def test_mistakes(
    words: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["cans", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    found = capsys.readouterr()
    assert caught.value.code == code
    assert message in found.err
    assert found.err.count("\n") == 1
    assert found.out == ""


def test_floors_and_codecs_that_no_point_has(server: str, tmp_path: Path) -> None:
    for words, said in (
        (("--min-local-depth", "99"), "has points 0 to"),
        (("--allow-codec", "bogus"), "unknown codec 'bogus'"),
    ):
        done = run_cans("device", "--server", server, *words, home=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert said in done.stderr


def test_an_interrupted_run_prints_its_document(server: str, tmp_path: Path) -> None:
    words = ["device", "--server", server, "--count", "100000", "--json", "--log-jsonl",
             str(tmp_path / "lines"), "--state", str(tmp_path / "state")]  # fmt: skip
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": "", "CANS_CACHE": ""}
    heeding = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    with subprocess.Popen([*CANS, *words], stdout=subprocess.PIPE, text=True, env=env,
                          stderr=subprocess.DEVNULL, preexec_fn=heeding) as process:  # fmt: skip
        until = time.monotonic() + 60
        while not (tmp_path / "lines").exists() or len((tmp_path / "lines").read_text()) < 3000:
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    document = json.loads(out)
    assert document["answered"] == len(document["inferences"]) > 3
    assert process.returncode not in (0, 2)


def test_a_taken_port_and_a_server_without_tls_are_one_line_each(
    server: str, model: Path, tmp_path: Path
) -> None:
    words = ["serve", "--model", str(model), "--store", "memory:", "--listen", server]
    taken = run_cans(*words, home=tmp_path)
    assert (taken.returncode, taken.stderr.count("\n")) == (1, 1), taken.stderr
    assert "the port is taken" in taken.stderr
    words[-1] = "localhost.invalid:0"
    unknown = run_cans(*words, home=tmp_path)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 2), unknown.stderr  # a warning
    assert "cannot listen on localhost.invalid:0: Name" in unknown.stderr
    plain = run_cans("device", "--server", server, "--model", str(model), "--tls", home=tmp_path)
    assert (plain.returncode, plain.stderr.count("\n")) == (0, 1), plain.stderr
    assert "does not speak TLS" in plain.stderr


def test_a_server_that_everyone_may_use_says_so(model: Path, tmp_path: Path) -> None:
    words = ("serve", "--model", str(model), "--store", "memory:", "--listen")
    refused = run_cans(*words, f"0.0.0.0:{free_port()}", "--strict", home=tmp_path)
    assert refused.returncode == 2
    assert "everyone who reaches" in refused.stderr
    nothing = run_cans("serve", "--listen", f"127.0.0.1:{free_port()}", home=tmp_path)
    assert (nothing.returncode, len(nothing.stderr.splitlines())) == (2, 1)
