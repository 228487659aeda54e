"""Small models of programs, as files; and a server that cuts them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, save

from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split

SHAPE = (1, 3, 16, 16)


def classifier(path: Path, batch: int | str = 1) -> Path:
    """Two convolutions and a product; the batch may be open."""
    generator = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape).astype("float32"), name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("MatMul", ["e", "m"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *SHAPE[1:]])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 5]),
            helper.make_tensor_value_info("label", TensorProto.INT64, [batch]),
        ],
        [weight("w", 8, 3, 3, 3), weight("v", 8, 8, 3, 3), weight("m", 8, 5)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, path)
    return path


def served(path: Path, **cutting: object) -> SplitModel:
    how = Cutting(**cutting)  # type: ignore[arg-type]
    return split(load_model(path, how), how)


def picture(seed: int = 0, batch: int = 1) -> NDArray[np.float32]:
    values = np.random.default_rng(seed).standard_normal((batch, *SHAPE[1:]))
    return values.astype(np.float32)
