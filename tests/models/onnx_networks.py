"""Small ONNX models for the tests, written to a folder; and the law every cut must obey."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from cans.models import Executor, find_points, load
from cans.models.run.inputs import index_limits, random_inputs
from cans.models.tools.comparing import error
from cans.models.tools.evidence import run_original, tolerance_of

FLOAT = TensorProto.FLOAT


def weight(name: str, *shape: int, seed: int = 0, dtype: str = "float32") -> TensorProto:
    generator = np.random.default_rng([seed, *name.encode()])
    fan_in = max(int(np.prod(shape[1:])), 1)
    values = generator.standard_normal(shape) / np.sqrt(fan_in)
    return numpy_helper.from_array(values.astype(dtype), name)


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    outputs: list[str],
    initializers: list[TensorProto] | None = None,
    *,
    types: dict[str, int] | None = None,
    opset: int = 17,
    ir: int = 8,
    **extra: Any,
) -> Path:
    """Write a model; outputs have no declared shape, as in careless exports."""
    kinds = types or {}
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, kinds.get(n, FLOAT), s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kinds.get(n, FLOAT), None) for n in outputs],
        initializers or [],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir, **extra
    )
    onnx.save(model, path)
    return path


def node(kind: str, inputs: list[str], outputs: list[str] | str, **attributes: Any) -> Any:
    made = [outputs] if isinstance(outputs, str) else outputs
    return helper.make_node(kind, inputs, made, **attributes)


def assert_split_equals_whole(
    source: str | Path,
    shapes: dict[str, tuple[int, ...]] | None = None,
    *,
    max_tensors: int = 1,
    max_points: int | None = None,
    fused: bool = True,
    every: int = 1,
    inputs: dict[str, NDArray[Any]] | None = None,
) -> list[str]:
    """Run every cut as a chain and as fused halves; returns the names of the points.

    `every` checks only each so-manieth point: all of them take minutes on the larger models.
    """
    model = load(source, shapes)
    points = find_points(model, max_tensors, max_points)
    values = inputs or random_inputs(
        model.inputs, np.random.default_rng(7), index_limits(model.proto.graph)
    )
    whole = run_original(model, values)
    allowed = tolerance_of(whole, points)
    executor = Executor(model, points)
    for point in points[::every]:
        ways = ("chain", "fused") if fused else ("chain",)
        for way in ways:
            if way == "fused":
                executor.prepare(point.index, calibrate=False)
            front = executor.run_front(point.index, values)
            back = executor.run_back(point.index, front.crossing)
            outputs = {**front.outputs, **back.outputs}
            assert set(outputs) == set(model.outputs)
            assert error(outputs, whole) <= allowed, f"{way} at {point.name}"
    return [point.name for point in points]
