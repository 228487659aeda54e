"""What costs nothing to send hides no cut; activations are one operation; turns of loops count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import FLOAT, assert_split_equals_whole, node, save, weight

from cans.models import find_points, load
from cans.models.points.points import hint


def encoder(path: Path, tokens: int = 128, layers: int = 3) -> Path:
    """An attention encoder whose mask, made from the token mask, is read in every layer."""
    nodes = [node("Gather", ["table", "ids"], "h0"), node("Cast", ["mask"], "m1", to=FLOAT)]
    nodes += [node("Unsqueeze", ["m1", "axes"], "m2"), node("Expand", ["m2", "square"], "m3")]
    nodes += [node("Sub", ["one", "m3"], "m4"), node("Mul", ["m4", "far"], "bias")]
    for i in range(layers):
        h = f"h{i}"
        nodes += [
            node("MatMul", [h, "q"], f"q{i}"),
            node("Transpose", [h], f"k{i}", perm=[0, 2, 1]),
        ]
        nodes += [
            node("MatMul", [f"q{i}", f"k{i}"], f"s{i}"),
            node("Add", [f"s{i}", "bias"], f"b{i}"),
        ]
        nodes += [
            node("Softmax", [f"b{i}"], f"p{i}", axis=-1),
            node("MatMul", [f"p{i}", h], f"a{i}"),
        ]
        nodes += [node("MatMul", [f"a{i}", "q"], f"o{i}"), node("Add", [f"o{i}", h], f"h{i + 1}")]
    extra = [weight("table", 50, 64), weight("q", 64, 64)]
    for name, value in (("axes", [1]), ("square", [1, tokens, tokens])):
        extra.append(numpy_helper.from_array(np.array(value, np.int64), name))
    for name, number in (("one", 1.0), ("far", -1e4)):
        extra.append(numpy_helper.from_array(np.array(number, "f4"), name))
    types = {"ids": TensorProto.INT64, "mask": TensorProto.INT64}
    inputs = {"ids": [1, tokens], "mask": [1, tokens]}
    return save(path, nodes, inputs, [f"h{layers}"], extra, types=types)


@pytest.mark.parametrize("tokens", [128, 500])
def test_a_mask_is_made_anew_from_its_tokens(tmp_path: Path, tokens: int) -> None:
    path = encoder(tmp_path / "m.onnx", tokens)
    names = assert_split_equals_whole(path)
    assert {"h1", "h2"} < set(names)
    points = {point.name: point for point in find_points(load(path))}
    assert [each.name for each in points["h1"].tensors] == ["mask", "h1"]
    assert points["h1"].bytes == 8 * tokens + 4 * 64 * tokens


def test_a_scalar_at_the_side_hides_no_cut(tmp_path: Path) -> None:
    nodes = [node("ReduceMax", ["x"], "top", keepdims=0), node("MatMul", ["x", "w"], "a")]
    nodes += [node("Relu", ["a"], "b"), node("MatMul", ["b", "w"], "c"), node("Relu", ["c"], "d")]
    nodes += [node("MatMul", ["d", "w"], "e"), node("Mul", ["e", "top"], "out")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [32, 64]}, ["out"], [weight("w", 64, 64)])
    assert {"b", "d"} < set(assert_split_equals_whole(path))


@pytest.mark.parametrize("kind", ["silu", "mish", "gelu", "hardswish"])
def test_an_activation_of_several_operations_is_one(tmp_path: Path, kind: str) -> None:
    extra = [weight("w", 4, 4, 3, 3)]
    numbers = {"half": 0.5, "one": 1.0, "root": 1.4142, "three": 3.0, "six": 6.0}
    extra += [numpy_helper.from_array(np.array(v, "f4"), n) for n, v in numbers.items()]
    chains = {
        "silu": [("Sigmoid", "x", "s"), ("Mul", "x s", "y")],
        "mish": [("Softplus", "x", "p"), ("Tanh", "p", "t"), ("Mul", "x t", "y")],
        "gelu": [("Div", "x root", "d"), ("Erf", "d", "e"), ("Add", "e one", "f"),
                 ("Mul", "x f", "g"), ("Mul", "g half", "y")],
        "hardswish": [("Add", "x three", "a"), ("Relu", "a", "r"), ("Min", "r six", "m"),
                      ("Mul", "x m", "n"), ("Div", "n six", "y")],
    }  # fmt: skip
    nodes, before = [], "input"
    for i in range(3):
        nodes.append(node("Conv", [before, "w"], f"{i}x", pads=[1, 1, 1, 1]))
        for operator, inputs, output in chains[kind]:
            known = [n if any(n == e.name for e in extra) else f"{i}{n}" for n in inputs.split()]
            nodes.append(node(operator, known, f"{i}{output}"))
        before = f"{i}y"
    nodes.append(node("Conv", [before, "w"], "out"))
    path = save(tmp_path / "m.onnx", nodes, {"input": [1, 4, 16, 16]}, ["out"], extra)
    assert assert_split_equals_whole(path) == ["input", "0y", "1y", "2y", "end"]


def test_half_of_the_work_without_a_cut_gets_a_hint(tmp_path: Path) -> None:
    """Two branches side by side all the way: two tensors must cross."""
    nodes = [node("MatMul", ["x", "w"], "a0"), node("MatMul", ["a0", "w"], "b0")]
    for i in range(4):
        nodes += [node("MatMul", [f"a{i}", "w"], f"u{i}"), node("MatMul", [f"b{i}", "w"], f"v{i}")]
        nodes += [node("Add", [f"u{i}", f"v{i}"], f"a{i + 1}")]
        nodes += [node("Mul", [f"u{i}", f"v{i}"], f"b{i + 1}")]
    nodes += [node("Add", ["a4", "b4"], "out")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [32, 64]}, ["out"], [weight("w", 64, 64)])
    model = load(path)
    assert "--max-tensors 2" in hint(model, find_points(model), 1)
    assert hint(model, find_points(model, 2), 2) == ""


def body(shape: list[int] | None) -> onnx.GraphProto:
    return helper.make_graph(
        [node("MatMul", ["v", "m"], "w"), node("Identity", ["go"], "again")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, shape),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", FLOAT, shape),
        ],
    )


@pytest.mark.parametrize("shape", [None, [4, 16]])
def test_every_turn_of_a_loop_counts(tmp_path: Path, shape: list[int] | None) -> None:
    trips = numpy_helper.from_array(np.array(5, np.int64), "trips")
    nodes = [
        node("MatMul", ["x", "m"], "a"),
        node("Loop", ["trips", "", "a"], "l", body=body(shape)),
    ]
    nodes += [node("Relu", ["l"], "r"), node("MatMul", ["r", "m"], "out")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [4, 16]}, ["out"], [weight("m", 16, 16), trips])
    points = find_points(load(path))
    assert points[-1].front.total_macs == 7 * 4 * 16 * 16


def test_every_turn_of_a_scan_counts(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [node("Add", ["state", "part"], "sum"), node("MatMul", ["sum", "m"], "next"),
         node("Identity", ["next"], "row")],
        "body",
        [helper.make_tensor_value_info(n, FLOAT, None) for n in ("state", "part")],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in ("next", "row")],
    )  # fmt: skip
    nodes = [node("MatMul", ["x", "m"], "a")]
    nodes += [node("Scan", ["zero", "a"], ["end", "rows"], body=inner, num_scan_inputs=1)]
    nodes += [node("Relu", ["rows"], "out")]
    zero = numpy_helper.from_array(np.zeros((1, 16), "f4"), "zero")
    path = save(tmp_path / "m.onnx", nodes, {"x": [6, 1, 16]}, ["out"], [weight("m", 16, 16), zero])
    model = load(path)
    assert sum(sum(work.amount[:3]) for work in model.node_work) == 2 * 6 * 16 * 16
