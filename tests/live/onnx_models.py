"""Small real ONNX models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def convolutions(
    path: Path, layers: int = 4, channels: int = 8, size: int = 16, exits: Sequence[int] = ()
) -> Path:
    """conv + relu, so many times, then a classifier; random weights. After each layer in `exits`
    an early classifier of probabilities, the output `exit` with the layer's number."""
    rng = np.random.default_rng(0)
    nodes, weights, early = [], [], []
    name, before = "input", 3
    for i in range(layers):
        shape = (channels, before, 3, 3)
        values = (rng.standard_normal(shape) / np.sqrt(9 * before)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{i}"))
        nodes.append(helper.make_node("Conv", [name, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        name, before = f"r{i}", channels
        if i in exits:
            values = rng.standard_normal((channels, 10)).astype(np.float32)
            weights.append(numpy_helper.from_array(values, f"we{i}"))
            nodes.append(helper.make_node("GlobalAveragePool", [name], [f"pe{i}"]))
            nodes.append(helper.make_node("Flatten", [f"pe{i}"], [f"fe{i}"]))
            nodes.append(helper.make_node("MatMul", [f"fe{i}", f"we{i}"], [f"se{i}"]))
            nodes.append(helper.make_node("Softmax", [f"se{i}"], [f"exit{i}"], axis=1))
            early.append(helper.make_tensor_value_info(f"exit{i}", TensorProto.FLOAT, [1, 10]))
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    values = rng.standard_normal((channels, 10)).astype(np.float32)
    weights.append(numpy_helper.from_array(values, "fc"))
    nodes.append(helper.make_node("MatMul", ["flat", "fc"], ["scores"]))
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, size, size])],
        [*early, helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def with_weights_beside(path: Path, folder: str = "layers", **more: int) -> Path:
    """The same with every weight in a file of its own; all but the first in a folder below."""
    model = onnx.load(str(convolutions(path, **more)))  # type: ignore[arg-type]
    for i, tensor in enumerate(model.graph.initializer):
        location = f"{folder}/{tensor.name}.bin" if i else f"{tensor.name}.bin"
        target = path.parent / location
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
    onnx.save(model, str(path))
    return path


def fully_connected(
    path: Path, width: int = 512, layers: int = 3, mixes_rows: bool = False
) -> Path:
    """Products of one row each, the batch fixed to one; random weights. `mixes_rows`: a row's
    outputs depend on the others of its batch."""
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "input"
    for i in range(layers):
        values = (rng.standard_normal((width, width)) / np.sqrt(width / 2)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"]))
        name = f"r{i}"
    shape = numpy_helper.from_array(np.array([1, -1], dtype=np.int64), "shape")
    weights.append(shape)
    nodes.append(helper.make_node("Reshape", [name, "shape"], ["flat"]))
    axis = 0 if mixes_rows else 1
    nodes.append(helper.make_node("LogSoftmax", ["flat"], ["soft"], axis=axis))
    nodes.append(helper.make_node("Add", ["flat", "soft"], ["scores"]))
    graph = helper.make_graph(
        nodes,
        "fully_connected",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, width])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, width])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def endless(path: Path, size: int = 16) -> Path:
    """A convolution, and a loop that says to itself that it shall go on."""
    carried = [1, 3, size, size]
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["twice"]),
            helper.make_node("Identity", ["go"], ["again"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, carried),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("twice", TensorProto.FLOAT, carried),
        ],
    )
    weights = [
        numpy_helper.from_array(np.ones((3, 3, 1, 1), np.float32), "w"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["a"]),
        helper.make_node("Loop", ["", "yes", "a"], ["l"], body=body),
        helper.make_node("Conv", ["l", "w"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "endless",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, carried)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, carried)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path
