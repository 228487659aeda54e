"""Inputs of any size through a real server: right answers, one pool, rows of the moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model

from cans.errors import InputError
from cans.live.device.device import Device
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from cans.live.wire.terms import cutting_in, cutting_out
from tests.live.running import running, terms

CUTTING = Cutting(shapes=(("x", (1, 3, 32, 320)),), lowest=(("x", (1, 3, 32, 32)),))


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strided convolutions over a text line of any width."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        values = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype("f4"), name)

    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "b"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "c"], ["out"], pads=[1, 1, 1, 1]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, "W"])
    y = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    weights = [weight("a", 16, 3, 3, 3), weight("b", 32, 16, 3, 3), weight("c", 8, 32, 3, 3)]
    graph = helper.make_graph(nodes, "line", [x], [y], weights)
    path = tmp_path_factory.mktemp("line") / "line.onnx"
    opset = [helper.make_opsetid("", 17)]
    save_model(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def served(path: Path) -> SplitModel:
    return split(load_model(path, CUTTING), CUTTING, codecs=["float32", "uint8"])


def image(width: int) -> dict[str, np.ndarray]:
    values = np.random.default_rng(width).standard_normal((1, 3, 32, width))
    return {"x": values.astype(np.float32)}


def test_the_range_travels() -> None:
    assert cutting_in(cutting_out(CUTTING)) == CUTTING


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw"])
def test_every_width_is_answered_rightly_and_learned_in_one_pool(
    line: Path, tmp_path: Path, policy: str
) -> None:
    model = served(line)
    widths = list(range(32, 320, 24))
    whole = {w: model.executor.run_front(model.last, image(w)).outputs["out"] for w in widths}
    with (
        running(model, terms=terms(policy)) as server,
        Device(server.address, line, "test", state=tmp_path / "state", seed=1) as device,
    ):
        for turn in range(3):
            for width in widths:
                answer = device.infer(image(width))["out"]
                close = np.abs(answer - whole[width]).max()
                assert close < 0.2, (turn, width, device.last.codec)
                if device.last.codec == "float32":
                    assert close < 1e-4
        learner = device._experience.learner
        assert learner is not None
        rows = model.rows
        assert rows is not None
        small, large = (rows.at(learner.table, image(width)) for width in (32, 308))
        pools = {key.table for key in learner.pools()}
    assert large.front[-1].sum() > small.front[-1].sum() > 0
    assert small.version == large.version == model.table.version
    assert pools == {model.table.version}


def test_a_width_out_of_range_is_refused(line: Path, tmp_path: Path) -> None:
    with (
        running(served(line)) as server,
        Device(server.address, line, "test", state=tmp_path / "state") as device,
    ):
        with pytest.raises(InputError, match=r"32\.\.320"):
            device.infer(image(321))
        assert device.infer(image(320))["out"].shape == (1, 8, 8, 80)
