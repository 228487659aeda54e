"""`cans run`: programs as they are, with a server, without one, and when it dies half-way."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from live.running import Running, running
from program.networks import classifier, served

APP = """
import sys
import numpy, onnxruntime
from onnxruntime import InferenceSession
from onnxruntime.capi import onnxruntime_inference_collection

assert onnxruntime_inference_collection.InferenceSession is InferenceSession

session = InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
for seed in range(int(sys.argv[2])):
    x = numpy.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype("float32")
    scores, label = session.run(None, {session.get_inputs()[0].name: x})
    print(seed, [f"{each:.3f}" for each in scores[0]], label[0])
try:
    session.run(None, {"nope": x})
except ValueError as error:
    print("refused:", error)
print(type(session).__name__, "startup" in " ".join(sys.path))
"""


def launch(
    arguments: list[str], home: Path, server: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program, under `cans run` if there is a server to name."""
    before = [sys.executable, "-m", "cans", "run", "--server", server, "--wait", "--"]
    return subprocess.run(
        [*(before if server else []), *arguments],
        capture_output=True, text=True, check=False, timeout=600,
        env=os.environ | {"HOME": str(home), **variables},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--deadline-ms", "nan"], "--deadline-ms must be positive"),
        (["--max-memory-mb", "0"], "--max-memory-mb must be positive"),
        (["--network", ""], "the network of a device must be"),
        (["--tls-ca", "nothing.pem"], "cannot read nothing.pem"),
        (["--server", "edge-box:http"], "--server must be HOST:PORT"),
    ],
)
def test_options_that_no_device_takes_start_nothing(
    options: list[str], said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cans", "run", "--server", "127.0.0.1:9", *options, "--",
         "touch", str(tmp_path / "started")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr
    assert not (tmp_path / "started").exists()


@pytest.fixture
def app(tmp_path: Path) -> list[str]:
    (tmp_path / "app.py").write_text(APP)
    model = classifier(tmp_path / "classifier.onnx")
    return [sys.executable, str(tmp_path / "app.py"), str(model), "6"]


def answered(server: Running) -> int:
    """Requests that a server has answered."""
    return server.server.workers.queue_ms.count


def test_the_same_output_with_a_server_and_without(app, tmp_path) -> None:
    plain = launch(app, tmp_path)
    assert plain.returncode == 0, plain.stderr
    with running(served(Path(app[2]))) as server:
        helped = launch(app, tmp_path, server.address)
        assert answered(server) > 0
    assert (helped.stdout, helped.returncode) == (plain.stdout, 0), helped.stderr
    assert helped.stderr == ""
    gone = launch(app, tmp_path, "127.0.0.1:9")
    assert (gone.stdout, gone.returncode) == (plain.stdout, 0)
    (line,) = gone.stderr.splitlines()
    assert line == "classifier.onnx runs locally for now: no server answers"


def test_a_sitecustomize_of_the_environment_still_runs(app, tmp_path) -> None:
    other = tmp_path / "own"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys; sys.stderr.write('own sitecustomize\\n')")
    path = os.pathsep.join([str(other), os.environ.get("PYTHONPATH", "")])
    done = launch([sys.executable, "-c", "print(1)"], tmp_path, "127.0.0.1:9", PYTHONPATH=path)
    assert done.stdout == "1\n"
    assert done.stderr == "own sitecustomize\n" * 2  # `cans run` itself, and the program


def test_exit_codes_and_bad_input(tmp_path) -> None:
    done = launch([sys.executable, "-c", "raise SystemExit(7)"], tmp_path, "127.0.0.1:9")
    assert done.returncode == 7
    for arguments, said in ((["no-such-program"], "no-such-program"), ([], "PROGRAM")):
        done = launch(arguments, tmp_path, "127.0.0.1:9")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert said in line


ENDS_EARLY = """
import atexit, sys, threading

def left():
    print([each.name for each in threading.enumerate() if each.name.startswith("cans")])

atexit.register(left)  # before all others, so it runs after them
import onnxruntime
sessions = [onnxruntime.InferenceSession(sys.argv[1], model_name="any keyword passes")]
while not any(each.name == "cans-session" for each in threading.enumerate()):
    pass
"""


def test_a_program_that_ends_while_a_device_starts(tmp_path) -> None:
    """No thread is left that could come back from native code into an interpreter that is gone;
    and nobody waits for the server, which takes the connection and says nothing."""
    model = classifier(tmp_path / "classifier.onnx")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "cans", "run", "--server", server, "--"]
        done = subprocess.run(
            [*command, sys.executable, "-c", ENDS_EARLY, str(model)],
            capture_output=True, text=True, check=False, timeout=120,
            env=os.environ | {"HOME": str(tmp_path)},
        )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


@pytest.mark.slow
def test_a_server_that_dies_half_way(app, tmp_path) -> None:
    app[-1] = "400"
    plain = launch(app, tmp_path)
    server = Running.of(served(Path(app[2])))
    command = [sys.executable, "-m", "cans", "run", "--server", server.address, "--wait", "--"]
    with subprocess.Popen(
        [*command, sys.executable, "-u", *app[1:]], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"HOME": str(tmp_path)},
    ) as program:  # fmt: skip
        assert program.stdout is not None
        lines = [program.stdout.readline() for _ in range(60)]
        assert answered(server) > 0
        server.stop()
        lines += program.stdout.readlines()
    assert "".join(lines) == plain.stdout
    assert program.returncode == 0


# --- programs that others wrote ---

RAPIDOCR = {
    "ch_PP-OCRv4_det_infer.onnx": (1, 3, 64, 320),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (1, 3, 48, 192),
    "ch_PP-OCRv4_rec_infer.onnx": (1, 3, 48, 320),  # a longer text is wider, and stays local
}


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed: pip install 'cans-edge[trained]'")
    return Path(spec.origin).parent


def _without_times(text: str) -> str:
    return re.sub(r"\d+\.\d{6,}", lambda found: f"{float(found.group()):.4f}", text)


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
def test_rapidocr_reads_the_same(tmp_path: Path, dies: bool) -> None:
    models = _folder("rapidocr_onnxruntime") / "models"
    import cv2

    image = np.full((64, 320, 3), 255, np.uint8)
    cv2.putText(image, "EDGE SERVER 42", (8, 44), cv2.FONT_HERSHEY_SIMPLEX, 1.1, (0, 0, 0), 2)
    cv2.imwrite(str(tmp_path / "line.png"), image)
    program = [
        str(Path(sys.executable).with_name("rapidocr_onnxruntime")),
        "-img", str(tmp_path / "line.png"), "--det_limit_side_len", "64",
    ]  # fmt: skip
    plain = launch(program, tmp_path)
    assert "SERVER" in plain.stderr
    alone = launch(program, tmp_path, "127.0.0.1:9")
    assert _texts(alone.stderr) == _texts(plain.stderr)
    cut = [served(models / name, shapes=(("x", shape),)) for name, shape in RAPIDOCR.items()]
    with running(*cut) as server:
        if dies:
            _stop_after_first_answer(server)
        helped = launch(program, tmp_path, server.address)
        assert answered(server) > 0
    assert _texts(helped.stderr) == _texts(plain.stderr) != [], helped.stderr


def _texts(output: str) -> list[str]:
    """What was read and where; without how long it took."""
    return re.findall(r"\[\[\[.*?\]\], '[^']*', [\d.]{7}", output)


def _stop_after_first_answer(server: Running) -> None:
    import threading

    def watch() -> None:
        while not answered(server):
            time.sleep(0.002)
        server.stop()

    threading.Thread(target=watch, daemon=True).start()


@pytest.mark.slow
def test_magika_says_the_same(tmp_path: Path) -> None:
    (model,) = (_folder("magika") / "models").glob("*/model.onnx")
    texts = {"script.py": APP, "page.html": "<html><body>hello</body></html>" * 20,
             "data.json": json.dumps({"a": list(range(400))})}  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    program = [
        sys.executable, "-m", "magika.cli.magika_client", "--json", "--batch-size", "1",
        *(str(tmp_path / name) for name in texts),
    ]  # fmt: skip
    plain = launch(program, tmp_path)
    assert plain.returncode == 0, plain.stderr
    with running(served(model, shapes=(("bytes", (1, 2048)),))) as server:
        helped = launch(program, tmp_path, server.address)
        assert answered(server) > 0, helped.stderr
    gone = launch(program, tmp_path, "127.0.0.1:9")
    with running(served(model, shapes=(("bytes", (1, 2048)),))) as server:
        _stop_after_first_answer(server)
        died = launch(program, tmp_path, server.address)
    for done in (helped, gone, died):
        mine, theirs = (json.loads(_without_times(each.stdout)) for each in (done, plain))
        assert mine == theirs
