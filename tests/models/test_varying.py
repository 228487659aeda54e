"""Models whose input has no fixed size: cut once, run at any size, features of the moment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx_networks import FLOAT, node, save, weight
from typer.testing import CliRunner

from cans.cli import app
from cans.errors import InputError, ModelError
from cans.models import Executor, Model, Point, find_points, load
from cans.models.points.sized import SizedPoints, SizedTable
from cans.models.run.inputs import random_inputs
from cans.models.tools.comparing import error
from cans.models.tools.evidence import run_original

WIDTHS = range(32, 192, 4)
LENGTHS = range(4, 64)


def recogniser(path: Path) -> Path:
    """Strided convolutions over a text line, then columns as tokens; shapes are computed inside."""
    nodes = [
        node("Conv", ["x", "a"], "c1", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c1"], "r1"),
        node("MaxPool", ["r1"], "p1", kernel_shape=[3, 3], strides=[2, 2]),
        node("Conv", ["p1", "b"], "c2", pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c2"], "s2"),
        node("Mul", ["c2", "s2"], "r2"),
        node("ReduceMean", ["r2"], "m", axes=[2], keepdims=0),
        node("Transpose", ["m"], "t", perm=[0, 2, 1]),
        node("Shape", ["t"], "shape"),
        node("Gather", ["shape", "one"], "columns"),
        node("Concat", ["batch", "columns", "width"], "target", axis=0),
        node("Reshape", ["t", "target"], "tokens"),
        node("MatMul", ["tokens", "w"], "scores"),
        node("Softmax", ["scores"], "out", axis=-1),
    ]
    extra = [weight("a", 8, 3, 3, 3), weight("b", 16, 8, 3, 3), weight("w", 16, 40)]
    for name, value in (("one", [1]), ("batch", [1]), ("width", [16])):
        extra.append(numpy_helper.from_array(np.array(value, np.int64), name))
    return save(path, nodes, {"x": [1, 3, 32, "W"]}, ["out"], extra)


def encoder(path: Path) -> Path:
    nodes = [node("Gather", ["table", "ids"], "h0"), node("Cast", ["mask"], "m1", to=FLOAT)]
    nodes += [node("Unsqueeze", ["m1", "axes"], "m2"), node("Sub", ["unit", "m2"], "m3")]
    nodes += [node("Mul", ["m3", "far"], "bias")]
    for i in range(2):
        h = f"h{i}"
        nodes += [
            node("MatMul", [h, "q"], f"q{i}"),
            node("Transpose", [h], f"k{i}", perm=[0, 2, 1]),
            node("MatMul", [f"q{i}", f"k{i}"], f"s{i}"),
            node("Add", [f"s{i}", "bias"], f"b{i}"),
            node("Softmax", [f"b{i}"], f"p{i}", axis=-1),
            node("MatMul", [f"p{i}", h], f"a{i}"),
            node("MatMul", [f"a{i}", "q"], f"o{i}"),
            node("Add", [f"o{i}", h], f"h{i + 1}"),
        ]
    extra = [weight("table", 50, 64), weight("q", 64, 64)]
    extra += [numpy_helper.from_array(np.array([1], np.int64), "axes")]
    for name, number in (("unit", 1.0), ("far", -1e4)):
        extra.append(numpy_helper.from_array(np.array(number, "f4"), name))
    types = {"ids": TensorProto.INT64, "mask": TensorProto.INT64}
    return save(path, nodes, {"ids": ["N", "L"], "mask": ["N", "L"]}, ["h2"], extra, types=types)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, tuple[Point, ...]]:
    path = recogniser(tmp_path_factory.mktemp("varying") / "line.onnx")
    model = load(path, {"x": (1, 3, 32, 192)}, lowest={"x": (1, 3, 32, 32)})
    return path, model, find_points(model)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, tuple[Point, ...]]:
    path = encoder(tmp_path_factory.mktemp("varying") / "text.onnx")
    high, low = (2, 64), (1, 4)
    model = load(path, {"ids": high, "mask": high}, lowest={"ids": low, "mask": low})
    return path, model, find_points(model)


def inputs_at(model: Model, shape: tuple[int, ...], seed: int = 0) -> dict:
    from dataclasses import replace

    tensors = [replace(each, shape=shape) for each in model.inputs]
    return random_inputs(tensors, np.random.default_rng(seed), {"ids": 50})


@pytest.mark.parametrize("which", ["line", "text"])
def test_split_equals_whole_at_every_size(which: str, request: pytest.FixtureRequest) -> None:
    _, model, points = request.getfixturevalue(which)
    assert len(points) >= 4
    executor = Executor(model, points)
    sizes = [(1, 3, 32, w) for w in WIDTHS] if which == "line" else [(1, n) for n in LENGTHS]
    for point in points:
        executor.prepare(point.index, calibrate=False)
    for number, shape in enumerate(sizes):
        values = inputs_at(model, shape, number)
        whole = run_original(model, values)
        for point in points[number % 2 :: 2]:
            front = executor.run_front(point.index, values)
            back = executor.run_back(point.index, front.crossing)
            assert error({**front.outputs, **back.outputs}, whole) <= 1e-5


@pytest.mark.parametrize("which", ["line", "text"])
def test_counts_are_those_of_the_model_at_that_size(
    which: str, request: pytest.FixtureRequest
) -> None:
    path, model, points = request.getfixturevalue(which)
    sized = SizedPoints(model, points)
    shapes = [(1, 3, 32, w) for w in (32, 57, 100, 191)]
    if which == "text":
        shapes = [(1, 4), (2, 17), (1, 33), (2, 63)]
    for shape in shapes:
        given = {each.name: shape for each in model.inputs}
        fixed = {point.name: point for point in find_points(load(path, given))}
        same = [point for point in sized.at(given) if point.name in fixed]
        assert len(same) >= 3
        for point in same:
            there = fixed[point.name]
            assert point.front.total_macs == there.front.total_macs
            assert point.back.total_macs == there.back.total_macs
            large = {each.name: each.shape for each in there.tensors if each.nbytes > 100}
            mine = {each.name: each.shape for each in point.tensors}
            assert {name: mine[name] for name in large} == large


def test_rows_of_any_size_are_on_one_scale(line: tuple[Path, Model, tuple[Point, ...]]) -> None:
    _, model, points = line
    table = SizedTable(model, points, codecs=("float32", "uint8"))
    full = table.at({"x": np.zeros((1, 3, 32, 192), "f4")})
    np.testing.assert_allclose(full.front, table.largest.front, rtol=1e-9)
    np.testing.assert_allclose(full.link, table.largest.link, rtol=1e-9)
    half = table.at({"x": np.zeros((1, 3, 32, 96), "f4")})
    macs = table.largest.names["front"].index("conv macs")
    ratio = half.front[-1, macs] / full.front[-1, macs]
    assert 0.45 < ratio < 0.55
    assert half.point_of == full.point_of
    assert half.version == full.version
    assert table.at({"x": np.zeros((1, 3, 32, 96), "f4")}) is half


def test_what_is_out_of_range_is_refused(line: tuple[Path, Model, tuple[Point, ...]]) -> None:
    executor = Executor(*line[1:])
    for width in (31, 193):
        with pytest.raises(InputError, match=r"must be float32\[1, 3, 32, 32\.\.192\]"):
            executor.run_front(1, {"x": np.zeros((1, 3, 32, width), np.float32)})


def test_ranges_on_the_command_line(line: tuple[Path, Model, tuple[Point, ...]]) -> None:
    path = str(line[0])
    shape = ["--shape", "x=1x3x32x32..192"]
    run = CliRunner().invoke
    report = json.loads(
        run(app, ["inspect", path, *shape, "--json"], catch_exceptions=False).stdout
    )
    assert report["inputs"][0]["lowest"] == [1, 3, 32, 32]
    assert "32..192" in run(app, ["inspect", path, *shape], catch_exceptions=False).stdout
    verified = run(app, ["verify", path, *shape, "--json"], catch_exceptions=False).stdout
    assert json.loads(verified)["verdict"] == "equal"
    assert json.loads(verified)["samples"] >= 6
    for bad in ("x=1x3x32x192..32", "x=1x3x32x1..", "x=1x3x32..8"):
        with pytest.raises((InputError, ModelError)) as refused:
            run(app, ["inspect", path, "--shape", bad], catch_exceptions=False)
        assert "\n" not in str(refused.value)


def test_a_size_that_does_not_run_is_named(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], "a", strides=[4, 4]), node("Relu", ["a"], "b")]
    nodes += [node("Conv", ["b", "v"], "out")]
    extra: list[onnx.TensorProto] = [weight("w", 4, 3, 7, 7), weight("v", 4, 4, 3, 3)]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 3, "S", "S"]}, ["out"], extra)
    with pytest.raises(ModelError, match="does not run at all of these sizes"):
        load(path, {"x": (1, 3, 64, 64)}, lowest={"x": (1, 3, 2, 2)})
