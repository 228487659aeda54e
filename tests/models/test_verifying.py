"""`verify` says what it has shown: no false alarm, no success that means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_networks import node, save, weight
from onnxruntime.quantization import QuantType, quantize_dynamic
from typer.testing import CliRunner

from cans.cli import app
from cans.errors import InputError, RunError
from cans.models import PartitionTable, find_points, load
from cans.models.tools import evidence, verifying
from cans.models.tools.comparing import error, shows_nothing

IMAGE = {"x": [1, 4, 8, 8]}


def conv(x: str, y: str) -> onnx.NodeProto:
    return node("Conv", [x, "w"], y, pads=[1, 1, 1, 1])


def network(path: Path, *more: onnx.NodeProto, last: str = "out", **options: Any) -> Path:
    """Two convolutions from x to c, and what follows."""
    nodes = [conv("x", "a"), node("Relu", ["a"], "b"), conv("b", "c"), *more]
    extra = [weight("w", 4, 4, 3, 3), *options.pop("extra", ())]
    return save(path, nodes, options.pop("inputs", IMAGE), [last], extra, **options)


def verify(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["verify", *map(str, arguments), "--json"])
    if isinstance(done.exception, InputError):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, RunError | SystemExit)
    report = json.loads(done.stdout)
    assert "Infinity" not in done.stdout
    assert "NaN" not in done.stdout
    return report


def constant(name: str, value: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, "f4"), name)


@pytest.mark.parametrize(
    ("kind", "factor", "why"),
    [
        ("Mul", 0.0, "the same for every input"),
        ("Mul", np.nan, "not a number"),
    ],
)
def test_outputs_that_show_nothing(tmp_path: Path, kind: str, factor: float, why: str) -> None:
    last = node(kind, ["c", "k"], "out")
    path = network(tmp_path / "m.onnx", last, extra=[constant("k", factor)])
    report = verify(path)
    assert report["verdict"] == "unproven"
    assert report["ok"] is None
    assert report["remarks"] == [f"output 'out' is {why}"]
    with pytest.raises(RunError, match=r"nothing is shown.*--input"):
        CliRunner().invoke(app, ["verify", str(path)], catch_exceptions=False)


def test_saturated_outputs_show_nothing(tmp_path: Path) -> None:
    more = [node("Mul", ["c", "k"], "d"), node("Sigmoid", ["d"], "out")]
    report = verify(network(tmp_path / "m.onnx", *more, extra=[constant("k", 1e9)]))
    assert report["verdict"] == "unproven"
    assert "saturated" in report["remarks"][0]


def test_one_output_that_shows_something_is_enough(tmp_path: Path) -> None:
    nodes = [conv("x", "a"), node("Relu", ["a"], "b"), conv("b", "c")]
    nodes += [node("Mul", ["c", "k"], "zero")]
    extra = [weight("w", 4, 4, 3, 3), constant("k", 0.0)]
    report = verify(save(tmp_path / "m.onnx", nodes, IMAGE, ["c", "zero"], extra))
    assert report["verdict"] == "equal"
    assert report["remarks"] == ["output 'zero' is the same for every input"]


def test_a_random_operator_is_named_and_nothing_is_claimed(tmp_path: Path) -> None:
    more = [node("RandomNormalLike", ["c"], "noise"), node("Add", ["c", "noise"], "out")]
    report = verify(network(tmp_path / "m.onnx", *more))
    assert report["verdict"] == "unproven"
    assert "RandomNormalLike" in report["remarks"][-1]


def test_a_threshold_is_no_false_alarm(tmp_path: Path) -> None:
    """A difference by rounding times 1e9: the uncut model differs from itself as well."""
    more = [node("Mul", ["c", "k"], "d"), node("Round", ["d"], "e"), node("Sin", ["e"], "out")]
    report = verify(network(tmp_path / "m.onnx", *more, extra=[constant("k", 1e8)]))
    assert report["verdict"] == "equal"
    assert report["own_error"] > report["tolerance"]
    assert "Round" in report["remarks"][-1]


def test_only_cuts_that_differ_more_than_the_model_from_itself_are_unsafe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = ("Tanh", ["d"], "e"), ("Round", ["e"], "f"), ("Sin", ["f"], "out")
    more = [node("Mul", ["c", "k"], "d"), *(node(kind, i, o) for kind, i, o in steps)]
    model = load(network(tmp_path / "m.onnx", *more, extra=[constant("k", 1e8)]))
    points = find_points(model)
    assert verifying.unsafe_cuts(model, points).points == frozenset()
    monkeypatch.setattr(evidence, "_own_difference", lambda *_: 0.1)
    split = verifying._split_runs

    def wrong_at_one(model, point, *rest):
        return [({n: v + (point.index == 1) for n, v in made.items()}, size)
                for made, size in split(model, point, *rest)]  # fmt: skip

    monkeypatch.setattr(verifying, "_split_runs", wrong_at_one)
    found = verifying.unsafe_cuts(model, points)
    assert (found.points, found.operators) == (frozenset({1}), ("Round",))
    table = PartitionTable.of(model, points, left_out=found.points)
    assert table.points == tuple(each.name for each in points)
    assert 1 not in table.point_of
    assert table.choices == len(points) - 1


def test_outputs_that_are_no_tensors(tmp_path: Path) -> None:
    """Sequences, and maps of a classifier: their numbers are compared, not their spelling."""
    near, far = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    for wrap in (lambda a: [a, a], lambda a: [{"yes": float(a[1])}], lambda a: {0: a}):
        assert error({"y": wrap(near * (1 + 1e-9))}, {"y": wrap(near)}) < 1e-8
        assert error({"y": wrap(far)}, {"y": wrap(near)}) > 0.1
        assert shows_nothing([{"y": wrap(near)}, {"y": wrap(near)}]) == {
            "y": "the same for every input"
        }
        assert not shows_nothing([{"y": wrap(near)}, {"y": wrap(far)}])
    assert error({"y": [near]}, {"y": [near, near]}) == np.inf
    assert error({"y": [{"a": 1.0}]}, {"y": [{"b": 1.0}]}) == np.inf
    more = [node("Tanh", ["c"], "d"), node("SplitToSequence", ["d"], "out", axis=1)]
    assert verify(network(tmp_path / "m.onnx", *more))["verdict"] == "equal"


def test_a_threshold_in_a_body_is_named(tmp_path: Path) -> None:
    shape = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    bodies = {
        f"{name}_branch": onnx.helper.make_graph([node(kind, ["c"], "y")], name, [], [shape])
        for name, kind in (("then", "Round"), ("else", "Ceil"))
    }
    branch = onnx.helper.make_node("If", ["flag"], ["out"], **bodies)
    more = [
        node("ReduceSum", ["c"], "sum", keepdims=0),
        node("Cast", ["sum"], "flag", to=9),
        branch,
    ]
    assert evidence.sensitive(load(network(tmp_path / "m.onnx", *more))) == ["Ceil", "Round"]


def test_dynamically_quantised(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "m"], "a"), node("Relu", ["a"], "b")]
    nodes += [node("MatMul", ["b", "n"], "c"), node("Tanh", ["c"], "d")]
    nodes += [node("MatMul", ["d", "n"], "out")]
    extra = [weight("m", 64, 64), weight("n", 64, 64)]
    source = save(tmp_path / "f.onnx", nodes, {"x": [4, 64]}, ["out"], extra)
    quantize_dynamic(source, tmp_path / "q.onnx", weight_type=QuantType.QInt8)
    assert verify(tmp_path / "q.onnx")["verdict"] == "equal"


@pytest.mark.parametrize("codec", ["float32", "uint8"])
def test_an_output_whose_shape_depends_on_the_data(tmp_path: Path, codec: str) -> None:
    more = [node("Greater", ["c", "k"], "large"), node("Flatten", ["c"], "flat", axis=0)]
    more += [node("Flatten", ["large"], "which", axis=0)]
    more += [node("Squeeze", ["flat"], "one"), node("Squeeze", ["which"], "mask")]
    more += [node("Compress", ["one", "mask"], "out", axis=0)]
    path = network(tmp_path / "m.onnx", *more, extra=[constant("k", 0.1)])
    report = verify(path, "--codec", codec)
    assert report["verdict"] in ("equal", "lossy")
    assert report["ok"] in (True, None)


def test_inputs_from_files(tmp_path: Path) -> None:
    """Shapes that the model leaves open are those of the arrays."""
    last = node("Relu", ["c"], "out")
    path = network(tmp_path / "m.onnx", last, inputs={"x": ["N", 4, "H", "W"]})
    values = np.random.default_rng(0).standard_normal((2, 4, 5, 6)).astype("f4")
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", x=values)
    for name in ("x.npy", "x.npz"):
        assert verify(path, "--input", tmp_path / name)["verdict"] == "equal"
    np.savez(tmp_path / "more.npz", x=values, label=np.int64(3))  # not an input: not looked at
    assert verify(path, "--input", tmp_path / "more.npz")["verdict"] == "equal"
    np.save(tmp_path / "wrong.npy", values[:, :3])
    (tmp_path / "cut.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:-200])
    np.savez(tmp_path / "other.npz", y=values)
    wrong = ("wrong.npy", r"^input 'x' must be N, 4, H, W, got the shape \[2, 3, 5, 6\]$")
    (tmp_path / "picture.jpg").write_bytes(b"\xff\xd8\xff")
    neither = ("picture.jpg", "neither an .npz nor an .npy file")
    missing = ("other.npz", "no input 'x'")
    for name, says in (("cut.npz", "cannot read"), neither, missing, wrong):
        with pytest.raises(InputError, match=says):
            verify(path, "--input", tmp_path / name)


_MEASURED = """
import resource, sys
import numpy as np
from cans.models import find_points, load
from cans.models.tools import evidence, verifying
model = load(sys.argv[1])
if sys.argv[2] == "all":
    assert verifying.verify(model, find_points(model))["ok"]
else:
    values = evidence.random_inputs(model.inputs, np.random.default_rng(0))
    evidence.run_original(model, values)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize(
    "layers", [60, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_a_long_chain_needs_little_memory(tmp_path: Path, layers: int) -> None:
    nodes = []
    for i in range(layers):
        nodes += [conv(f"t{i}", f"c{i}"), node("Mul", [f"c{i}", "k"], f"s{i}")]
        nodes += [node("Add", [f"t{i}", f"s{i}"], f"t{i + 1}")]
    extra = [weight("w", 4, 4, 3, 3), constant("k", 0.01)]
    path = save(tmp_path / "m.onnx", nodes, {"t0": [1, 4, 8, 8]}, [f"t{layers}"], extra)

    def kilobytes(what: str) -> int:
        command = [sys.executable, "-c", _MEASURED, str(path), what]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert kilobytes("all") < 2 * kilobytes("whole")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_chain_of_a_thousand_points_takes_twice_its_own_memory(tmp_path: Path) -> None:
    """Peak resident memory of `cans verify` against that of the runtime with the whole model."""
    steps, width = 1000, 160  # 100 MB of weights
    nodes, extra, name = [], [], "x"
    for i in range(steps):
        nodes.append(node("MatMul", [name, f"w{i}"], f"m{i}"))
        nodes.append(node("Tanh", [f"m{i}"], f"t{i}" if i < steps - 1 else "out"))
        extra.append(weight(f"w{i}", width, width))
        name = f"t{i}"
    path = save(tmp_path / "chain.onnx", nodes, {"x": [1, width]}, ["out"], extra)
    whole = (
        "import sys, numpy as np, onnxruntime as o; s = o.InferenceSession(sys.argv[1]);"
        f"s.run(None, {{'x': np.ones((1, {width}), 'f4')}})"
    )
    report = tmp_path / "report.json"
    own = peak_mb([sys.executable, "-c", whole, str(path)])
    mine = peak_mb([sys.executable, "-m", "cans", "verify", str(path), "--json"], report)
    found = json.loads(report.read_text())
    assert (found["verdict"], len(found["points"])) == ("equal", steps + 1)
    assert mine <= 2.0 * own


def peak_mb(command: list[str], out: Path | None = None) -> float:
    """Largest resident memory of a process."""
    measuring = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[2:], check=True, "
        "stdout=open(sys.argv[1], 'w'));"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    words = [sys.executable, "-c", measuring, str(out or "/dev/null"), *command]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
