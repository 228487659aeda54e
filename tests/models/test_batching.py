"""Batches of back-ends: equal to single runs, or never used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.live.onnx_models import convolutions, fully_connected

from cans.errors import RunError
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from cans.models.run.batching import agree, made_up, sizes_up_to


def opened(path: Path | str) -> SplitModel:
    return split(load_model(path, Cutting()), Cutting())


def saved(
    path: Path, nodes: list[onnx.NodeProto], constants: list[TensorProto], made: list[int]
) -> Path:
    """A model whose input is (1, 8): a layer that makes `r`, and these nodes from it to `y`."""
    values = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    layer = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
    ]
    constants = [numpy_helper.from_array(values, "w"), *constants]
    graph = helper.make_graph(
        [*layer, *nodes],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("build", [convolutions, fully_connected])
def test_a_batch_gives_each_request_what_it_gets_alone(build, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    model = opened(build(tmp_path / "model.onnx"))
    executor = model.executor
    for point in range(model.last):
        found = executor.try_batches(point, 6)
        assert tuple(found) == (2, 4, 6), f"point {point}: its batch is one row in the file"
        rows = made_up(model.points[point].tensors, 5)  # type: ignore[arg-type]
        together = executor.run_together(point, rows)
        alone = [executor.run_back(point, each) for each in rows]
        assert agree([each.outputs for each in together], [each.outputs for each in alone])
        assert not np.allclose(*(each.outputs["scores"] for each in alone[:2]))


def test_rows_that_change_each_other_are_never_run_together(tmp_path: Path) -> None:
    model = opened(fully_connected(tmp_path / "mixing.onnx", width=32, mixes_rows=True))
    assert model.executor.try_batches(0, 4) == {}
    with pytest.raises(RunError, match="no batches"):
        model.executor.run_together(0, made_up(model.points[0].tensors, 2))  # type: ignore[arg-type]


def test_a_scale_that_is_found_over_all_rows_is_noticed(tmp_path: Path) -> None:
    """Dynamic quantisation: the largest value of any row decides for all."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["r"], ["q", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    model = opened(saved(tmp_path / "dynamic.onnx", nodes, [], [1, 8]))
    assert model.executor.try_batches(0, 4) == {}


def test_what_has_no_row_for_each_request_is_not_batched(tmp_path: Path) -> None:
    total = [helper.make_node("ReduceSum", ["r"], ["y"], keepdims=0)]
    assert opened(saved(tmp_path / "total.onnx", total, [], [])).executor.try_batches(0, 4) == {}
    shape = numpy_helper.from_array(np.array([8], dtype=np.int64), "shape")
    flat = [helper.make_node("Reshape", ["r", "shape"], ["y"])]
    assert (
        opened(saved(tmp_path / "flat.onnx", flat, [shape], [8])).executor.try_batches(0, 4) == {}
    )


def test_the_last_point_and_batches_of_one_have_nothing_to_try(tmp_path: Path) -> None:
    model = opened(fully_connected(tmp_path / "model.onnx", width=16))
    assert model.executor.try_batches(model.last, 8) == {}
    assert model.executor.try_batches(0, 1) == {}
    assert sizes_up_to(2) == (2,)


def test_a_built_in_network_is_run_in_batches() -> None:
    model = opened("mobilenet_v2")
    point = model.last - 2
    assert model.executor.try_batches(point, 4), "its file says one row"
    rows = made_up(model.points[point].tensors, 3)  # type: ignore[arg-type]
    together = model.executor.run_together(point, rows)
    alone = [model.executor.run_back(point, each) for each in rows]
    assert agree([each.outputs for each in together], [each.outputs for each in alone])
