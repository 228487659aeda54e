"""Execution providers: named on the command line, checked at start; a second real one."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest
from onnx_networks import node, save, weight
from typer.testing import CliRunner

from cans.cli import app
from cans.errors import InputError
from cans.models import RuntimeOptions

SOURCES = Path(__file__).parents[2] / "src"
NEEDED = ("onnxruntime-openvino", "onnx", "numpy", "zstandard", "typer", "rich", "grpcio")


def network(path: Path) -> Path:
    nodes = [node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node("Relu", ["a"], "b")]
    nodes += [node("Conv", ["b", "w"], "c", pads=[1, 1, 1, 1]), node("Flatten", ["c"], "f")]
    nodes += [node("MatMul", ["f", "m"], "out")]
    extra = [weight("w", 4, 4, 3, 3), weight("m", 256, 10)]
    return save(path, nodes, {"x": [1, 4, 8, 8]}, ["out"], extra)


def test_names_in_any_form() -> None:
    for name in ("cpu", "CPU", "CPUExecutionProvider"):
        assert RuntimeOptions.parse([name]).spelled == "CPU, 1 thread"
    options = RuntimeOptions.parse(["cpu,arena_extend_strategy=kSameAsRequested"], 2, "basic")
    assert options.provider_list() == [
        ("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})
    ]
    assert options.spelled == "CPU, 2 threads"


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "vgg16", "--provider", "tpu"],
        ["verify", "vgg16", "--optimisation", "some"],
        ["verify", "vgg16", "--threads", "-1"],
        ["verify", "vgg16", "--provider", "cpu,threads"],
        ["serve", "--model", "vgg16", "--provider", "tpu", "--store", "memory:"],
        ["device", "--server", "localhost:1", "--model", "vgg16", "--provider", "tpu"],
    ],
)
def test_what_is_not_available_is_refused_with_a_list(arguments: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "\n" not in str(refused.value)
    if "tpu" in arguments:
        assert "choose one of" in str(refused.value)
        assert "CPU" in str(refused.value)


@pytest.mark.parametrize("optimisation", ["all", "none"])
def test_options_reach_the_sessions(tmp_path: Path, optimisation: str) -> None:
    options = ["--provider", "cpu", "--threads", "2", "--optimisation", optimisation, "--json"]
    path = network(tmp_path / "m.onnx")
    done = CliRunner().invoke(app, ["verify", str(path), *options], catch_exceptions=False)
    assert json.loads(done.stdout)["verdict"] == "equal"


@pytest.fixture(scope="session")
def openvino(request: pytest.FixtureRequest) -> Path:
    """A Python with the OpenVINO build of the runtime, which cannot live beside the plain one."""
    folder = Path(request.config.cache.mkdir("openvino"))
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", *NEEDED]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip("cannot fetch the OpenVINO build: the package index is out of reach")
        (folder / "ready").touch()
    return python


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("codec", ["float32", "uint8"])
def test_a_second_provider(openvino: Path, tmp_path: Path, codec: str) -> None:
    path = network(tmp_path / "m.onnx")
    command = [openvino, "-m", "cans", "verify", path, "--json", "--codec", codec]
    command += ["--provider", "openvino,device_type=CPU"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["tolerance"] == 1e-3
    assert report["verdict"] == ("equal" if codec == "float32" else "lossy")
    assert report["worst_error"] < (1e-3 if codec == "float32" else 0.05)


_FRONT = """
import sys, numpy as np
from cans.models import Executor, RuntimeOptions, find_points, load
model = load(sys.argv[1])
executor = Executor(model, find_points(model), RuntimeOptions.parse(["openvino"]))
image = {"x": np.load(sys.argv[2])}
for point in range(len(executor.points) - 1):
    crossing = executor.run_front(point, image).crossing
    np.savez(f"{sys.argv[2]}.{point}.npz", **crossing)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_front_on_one_provider_and_back_on_another(openvino: Path, tmp_path: Path) -> None:
    import numpy as np

    from cans.models import Executor, find_points, load
    from cans.models.tools.comparing import error
    from cans.models.tools.evidence import PROVIDER_TOLERANCE

    path = network(tmp_path / "m.onnx")
    image = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype("f4")
    np.save(tmp_path / "x.npy", image)
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [openvino, "-c", _FRONT, path, tmp_path / "x.npy"]
    subprocess.run(command, env=environment, check=True)
    model = load(path)
    executor = Executor(model, find_points(model))
    whole = executor.run_whole({"x": image})
    for point in range(len(executor.points) - 1):
        with np.load(tmp_path / f"x.npy.{point}.npz") as file:
            crossing = {name: file[name] for name in file.files}
        back = executor.run_back(point, crossing).outputs
        assert error(back, whole) <= PROVIDER_TOLERANCE
