"""A model is believed when it has run: wrong shapes, endless loops, invalid graphs, suggestions."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import FLOAT, assert_split_equals_whole, node, save, weight

from cans.errors import InputError, ModelError
from cans.models import PartitionTable, load
from cans.models.onnx import trial

IMAGE = {"x": [1, 4, 8, 8]}
SOUND = {"x": [1, "samples"], "sr": []}


def conv(x: str, y: str) -> onnx.NodeProto:
    return node("Conv", [x, "w"], y, pads=[1, 1, 1, 1])


def number(name: str, value: object, dtype: str = "int64") -> TensorProto:
    return numpy_helper.from_array(np.array(value, dtype), name)


def test_the_run_is_right_where_inference_is_wrong(tmp_path: Path) -> None:
    """ONNX infers 400 bins of a one-sided transform; the runtime makes 201."""
    nodes = [node("STFT", ["x", "step", "window"], "bins", onesided=1)]
    nodes += [node("ReduceL2", ["bins"], "size", axes=[3], keepdims=0)]
    nodes += [node("Shape", ["size"], "shape"), node("Reshape", ["size", "shape"], "same")]
    nodes += [node("MatMul", ["same", "m"], "a"), node("Relu", ["a"], "b")]
    nodes += [node("MatMul", ["b", "n"], "out")]
    window = numpy_helper.from_array(np.hanning(400).astype("f4"), "window")
    extra = [number("step", 160), window, weight("m", 201, 64), weight("n", 64, 8)]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 4000, 1]}, ["out"], extra)
    assert load(path).tensors["size"].shape == (1, 23, 201)
    assert "b" in assert_split_equals_whole(path)


def test_an_endless_loop_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SECONDS", 2.0)
    body = helper.make_graph(
        [node("Add", ["v", "v"], "twice"), node("Identity", ["go"], "again")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, [1, 4, 8, 8]),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("twice", FLOAT, [1, 4, 8, 8]),
        ],
    )
    nodes = [conv("x", "a"), node("Loop", ["", "yes", "a"], "l", body=body), conv("l", "out")]
    extra = [weight("w", 4, 4, 3, 3), number("yes", True, "bool")]
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["out"], extra)
    began = monotonic()
    with pytest.raises(ModelError, match=r"does not run at this shape .*no end after 2 s"):
        load(path)
    assert monotonic() - began < 3.5  # it was not tried twice
    good = save(tmp_path / "n.onnx", [conv("x", "out")], IMAGE, ["out"], extra[:1])
    assert load(good).tensors["out"].shape == (1, 4, 8, 8)


def test_too_much_memory_is_refused(tmp_path: Path) -> None:
    nodes = [node("Expand", ["x", "huge"], "a"), node("ReduceSum", ["a"], "out")]
    path = save(
        tmp_path / "m.onnx", nodes, {"x": [1]}, ["out"], [number("huge", [1 << 20, 1 << 14])]
    )
    with pytest.raises(ModelError, match="does not run at this shape"):
        load(path)


def test_what_does_not_run_at_a_shape_says_why(tmp_path: Path) -> None:
    nodes = [conv("x", "a"), node("Flatten", ["a"], "f"), node("MatMul", ["f", "m"], "out")]
    extra = [weight("w", 4, 4, 3, 3), weight("m", 256, 10)]
    path = save(tmp_path / "m.onnx", nodes, {"x": ["N", 4, "H", "H"]}, ["out"], extra)
    with pytest.raises(ModelError, match=r"does not run at this shape \(x: 1, 4, 9, 9\): .*MatMul"):
        load(path, {"x": (1, 4, 9, 9)})


def _reads_nothing(folder: Path) -> Path:
    return save(folder / "m.onnx", [node("Relu", ["y"], "z")], IMAGE, ["z"])


def _circle(folder: Path) -> Path:
    nodes = [node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b")]
    return save(folder / "m.onnx", nodes, IMAGE, ["b"])


def _made_twice(folder: Path) -> Path:
    return save(
        folder / "m.onnx", [node("Relu", ["x"], "y"), node("Abs", ["x"], "y")], IMAGE, ["y"]
    )


def _no_output(folder: Path) -> Path:
    return save(folder / "m.onnx", [node("Relu", ["x"], "y")], IMAGE, ["z"])


def _future(folder: Path) -> Path:
    return save(folder / "m.onnx", [node("Relu", ["x"], "y")], IMAGE, ["y"], opset=99)


def _ort_format(folder: Path) -> Path:
    (folder / "m.ort").write_bytes(b"\x20\x00\x00\x00ORTM" + bytes(100))
    return folder / "m.ort"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_reads_nothing, "reads 'y', made nowhere"),
        (_circle, "in a circle"),
        (_made_twice, "made twice"),
        (_no_output, "nothing makes the output 'z'"),
        (_future, "opset 99"),
        (_ort_format, "ONNX Runtime's own format"),
    ],
)
def test_an_invalid_graph_is_called_so(tmp_path: Path, make, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        load(make(tmp_path))


def test_nodes_in_any_order(tmp_path: Path) -> None:
    nodes = [conv("b", "out"), node("Relu", ["a"], "b"), conv("x", "a")]
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["out"], [weight("w", 4, 4, 3, 3)])
    assert assert_split_equals_whole(path) == ["input", "b", "end"]


def test_suggested_shapes_run(tmp_path: Path) -> None:
    """A picture with its colours last, whose sides must be equal, and a second input like it."""
    nodes = [node("Add", ["x", "y"], "s"), node("Transpose", ["s"], "t", perm=[0, 3, 1, 2])]
    nodes += [node("Conv", ["t", "w"], "a"), node("Relu", ["a"], "out")]
    inputs = {"x": ["N", "S", "S", 3], "y": ["N", "S", "S", 3]}
    path = save(tmp_path / "m.onnx", nodes, inputs, ["out"], [weight("w", 4, 3, 3, 3)])
    with pytest.raises(ModelError, match="--shape x=1x224x224x3 --shape y=1x224x224x3"):
        load(path)
    with pytest.raises(ModelError, match=r"input 'y' .* --shape y=2x96x96x3$"):
        load(path, {"x": (2, 96, 96, 3)})


def test_a_recurrent_state_has_a_batch_of_its_own(tmp_path: Path) -> None:
    nodes = [node("Unsqueeze", ["x", "zero"], "u"), node("LSTM", ["u", "w", "r", "", "", "state"],
             ["y", "h"], hidden_size=8), node("Relu", ["y"], "out")]  # fmt: skip
    extra = [number("zero", [0]), weight("w", 1, 32, 6), weight("r", 1, 32, 8)]
    inputs = {"x": [None, 6], "state": [1, None, 8]}
    path = save(tmp_path / "m.onnx", nodes, inputs, ["out"], extra)
    with pytest.raises(ModelError, match="--shape x=1x6 --shape state=1x1x8"):
        load(path)


def test_a_suggestion_that_does_not_run_is_not_made(tmp_path: Path) -> None:
    """Only some sizes fill the shape it is given; the usual 224 does not."""
    nodes = [node("Reshape", ["x", "shape"], "r"), node("Relu", ["r"], "a")]
    nodes += [node("Conv", ["a", "w"], "out")]
    extra = [number("shape", [-1, 192, 64, 64]), weight("w", 4, 192, 3, 3)]
    path = save(tmp_path / "m.onnx", nodes, {"x": ["N", 3, "H", "W"]}, ["out"], extra)
    with pytest.raises(ModelError, match="--shape x=1x3x512x512"):
        load(path)


def test_a_table_without_codecs_is_refused(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx", [conv("x", "a"), conv("a", "out")], IMAGE, ["out"],
        [weight("w", 4, 4, 3, 3)],
    )  # fmt: skip
    with pytest.raises(InputError, match="at least one codec"):
        PartitionTable.from_onnx(path, codecs=())


def test_a_suggestion_runs_on_likely_inputs_not_only_on_ones(tmp_path: Path) -> None:
    """A voice detector: at its usual rate it takes 512 samples, at any other whatever there is."""
    made = helper.make_tensor_value_info("made", FLOAT, None)
    usual = helper.make_graph([node("Reshape", ["x", "frame"], "made")], "then", [], [made])
    other = helper.make_graph([node("Identity", ["x"], "made")], "else", [], [made])
    nodes = [node("Equal", ["sr", "rate"], "same")]
    nodes += [node("If", ["same"], "y", then_branch=usual, else_branch=other)]
    nodes += [node("ReduceSum", ["y"], "out", keepdims=0)]
    extra = [number("frame", [1, 512]), number("rate", 16000)]
    types = {"sr": TensorProto.INT64}
    path = save(tmp_path / "m.onnx", nodes, SOUND, ["out"], extra, types=types)
    with pytest.raises(ModelError, match=r"--shape x=1x512$"):
        load(path)
