"""`cans split`: two files that together are the model, and a repository that Triton can read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from google.protobuf import text_format
from onnx import numpy_helper
from onnx_networks import node, save, weight
from test_commands import in_process, small

from cans.errors import InputError, RunError
from cans.models import find_points, load
from cans.models.tools import halves


def test_the_two_files_are_the_model(tmp_path: Path) -> None:
    path = small(tmp_path / "m.onnx")
    out = tmp_path / "halves"
    document = json.loads(in_process("split", path, "--at", "b", "--out", out, "--json"))
    assert document == json.loads((out / "split.json").read_text())
    assert sorted(each.name for each in out.iterdir()) == ["back.onnx", "front.onnx", "split.json"]
    for side in ("front", "back"):
        onnx.checker.check_model(str(out / f"{side}.onnx"), full_check=True)
    x = np.random.default_rng(5).standard_normal((1, 4, 8, 8)).astype("float32")
    (whole,) = ort.InferenceSession(str(path)).run(None, {"x": x})
    (crossing,) = ort.InferenceSession(str(out / "front.onnx")).run(["b"], {"x": x})
    (split,) = ort.InferenceSession(str(out / "back.onnx")).run(None, {"b": crossing})
    np.testing.assert_allclose(split, whole, rtol=1e-5, atol=1e-5)
    assert document["point"] == {"index": 1, "name": "b", "bytes": 1024}


@pytest.mark.parametrize("name", ["mobilenet_v2"])
def test_a_built_in_network_with_weights_in_files(tmp_path: Path, name: str) -> None:
    model = load(name)
    points = find_points(model, 1, None)
    document = halves.write_halves(model, points[len(points) // 2], tmp_path)
    assert document["max_error"] <= document["tolerance"]
    sizes = sum((tmp_path / f"{side}.onnx").stat().st_size for side in ("front", "back"))
    assert sizes == pytest.approx(points[-1].front.weight_bytes, rel=0.05)


def test_early_and_constant_outputs(tmp_path: Path) -> None:
    """An output that the front-end makes, and one that no input influences."""
    nodes = [node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node("Relu", ["a"], "early")]
    nodes += [node("Conv", ["early", "w"], "c", pads=[1, 1, 1, 1]), node("Relu", ["c"], "late")]
    nodes += [node("Neg", ["k"], "fixed")]
    extra = [weight("w", 4, 4, 3, 3), weight("k", 3)]
    outputs = ["early", "late", "fixed"]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 4, 8, 8]}, outputs, extra)
    model = load(path)
    points = find_points(model, 1, None)
    document = halves.write_halves(model, points[1], tmp_path / "out")
    made = [each["name"] for side in ("front", "back") for each in document[side]["outputs"]]
    assert sorted(made) == sorted(outputs)


def test_big_weights_lie_beside_the_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(halves, "INLINE_BYTES", 1000)
    model = load("mobilenet_v2")
    points = find_points(model, 1, None)
    halves.write_halves(model, points[5], tmp_path)
    assert (tmp_path / "back.onnx.data").stat().st_size > 1_000_000
    ort.InferenceSession(str(tmp_path / "back.onnx"))
    monkeypatch.setattr(halves, "INLINE_BYTES", 1)
    careless = load(small(tmp_path / "m.onnx"))  # its outputs declare no shape
    halves.write_halves(careless, find_points(careless, 1, None)[1], tmp_path / "small")


def test_a_repository_for_triton(tmp_path: Path) -> None:
    from tritonclient.grpc import model_config_pb2

    in_process("split", small(tmp_path / "my net.onnx"), "--at", 2, "--out", tmp_path, "--triton")
    for side, tensor, shape in (("front", "x", [1, 4, 8, 8]), ("back", "c", [1, 4, 8, 8])):
        folder = tmp_path / f"my_net_{side}"
        text = (folder / "config.pbtxt").read_text()
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
        assert (config.name, config.backend, config.max_batch_size) == (
            folder.name, "onnxruntime", 0,
        )  # fmt: skip
        assert (config.input[0].name, list(config.input[0].dims)) == (tensor, shape)
        assert config.input[0].data_type == model_config_pb2.TYPE_FP32
        session = ort.InferenceSession(str(folder / "1" / "model.onnx"))
        assert [each.name for each in config.output] == [e.name for e in session.get_outputs()]


@pytest.mark.parametrize(
    ("at", "said"), [("0", "raw input"), ("end", "whole model"), ("9", "no point '9'")]
)
def test_points_that_have_no_two_halves(tmp_path: Path, at: str, said: str) -> None:
    points = find_points(load(small(tmp_path / "m.onnx")), 1, None)
    with pytest.raises(InputError, match=said):
        halves.point_named(points, at)


def test_halves_that_prove_nothing_are_not_written(tmp_path: Path) -> None:
    path = small(tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.full((1, 4, 8, 8), np.nan, "float32"))
    with pytest.raises(RunError, match=r"nothing is shown.*not a number.*nothing was written"):
        in_process("split", path, "--at", 1, "--out", tmp_path / "a", "--input", tmp_path / "x.npy")
    assert not list((tmp_path / "a").iterdir())
    np.save(tmp_path / "x.npy", np.ones((1, 4, 8, 8)))
    with pytest.raises(InputError, match="must be float32"):
        in_process("split", path, "--at", 1, "--out", tmp_path / "a", "--input", tmp_path / "x.npy")


def test_a_threshold_is_no_false_alarm(tmp_path: Path) -> None:
    """The halves may differ from the whole as the whole differs from itself."""
    nodes = [node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node("Relu", ["a"], "b")]
    nodes += [node("Conv", ["b", "w"], "c", pads=[1, 1, 1, 1]), node("Mul", ["c", "k"], "d")]
    nodes += [node("Round", ["d"], "e"), node("Sin", ["e"], "out")]
    extra = [weight("w", 4, 4, 3, 3), numpy_helper.from_array(np.array(1e8, "f4"), "k")]
    model = load(save(tmp_path / "m.onnx", nodes, {"x": [1, 4, 8, 8]}, ["out"], extra))
    document = halves.write_halves(model, find_points(model)[1], tmp_path / "out")
    assert document["tolerance"] > 1e-3


def test_nothing_is_left_of_halves_that_differ(tmp_path: Path, monkeypatch) -> None:
    model = load(small(tmp_path / "m.onnx"))
    points = find_points(model, 1, None)
    monkeypatch.setattr(halves, "error", lambda *_: 0.5)
    with pytest.raises(RunError, match="nothing was written"):
        halves.write_halves(model, points[1], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(InputError, match="is a file"):
        halves.write_halves(model, points[1], tmp_path / "m.onnx")
