"""A BERT of random weights as an ONNX file: texts of any length, with a mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model

WORDS, LONGEST = 1000, 512


def bert(path: Path, layers: int = 4, width: int = 192, heads: int = 4) -> Path:
    """`ids` and `mask` of [1, L]; the output `hidden` is [1, L, width]."""
    graph = _Graph()
    hidden = _embedding(graph, width)
    graph.add("Cast", ["mask"], "mask_f", to=TensorProto.FLOAT)
    graph.add("Unsqueeze", ["mask_f", graph.constant(np.array([1, 2]))], "mask_4")
    graph.add("Sub", [graph.constant(np.float32(1)), "mask_4"], "masked")
    graph.add("Mul", ["masked", graph.constant(np.float32(-1e4))], "bias")
    for layer in range(layers):
        attended = _attention(graph, hidden, f"l{layer}", width, heads)
        hidden = _feed_forward(graph, attended, f"l{layer}", width)
    graph.add("Identity", [hidden], "hidden")
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64, [1, "L"]) for n in ("ids", "mask")
    ]
    output = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, "L", width])
    made = helper.make_graph(graph.nodes, "bert", inputs, [output], graph.weights)
    opset = [helper.make_opsetid("", 17)]
    save_model(helper.make_model(made, opset_imports=opset, ir_version=8), path)
    return path


class _Graph:
    """Nodes and weights as they come."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._random = np.random.default_rng(0)

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> str:
        values = self._random.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(values.astype(np.float32))

    def linear(self, value: str, output: str, before: int, after: int) -> str:
        self.add("MatMul", [value, self.weight(before, after)], f"{output}_mm")
        bias = self.constant(np.zeros(after, np.float32))
        return self.add("Add", [f"{output}_mm", bias], output)

    def normal(self, value: str, output: str, width: int) -> str:
        scale, shift = np.ones(width, np.float32), np.zeros(width, np.float32)
        inputs = [value, self.constant(scale), self.constant(shift)]
        return self.add("LayerNormalization", inputs, output)


def _embedding(graph: _Graph, width: int) -> str:
    graph.add("Gather", [graph.weight(WORDS, width), "ids"], "words")
    graph.add("Shape", ["ids"], "shape")
    one = graph.constant(np.array([1]))
    graph.add("Gather", ["shape", one], "length")
    zero = graph.constant(np.array([0]))
    graph.add("Slice", [graph.weight(LONGEST, width), zero, "length", zero], "places")
    graph.add("Add", ["words", "places"], "placed")
    return graph.normal("placed", "embedded", width)


def _attention(graph: _Graph, hidden: str, name: str, width: int, heads: int) -> str:
    split = graph.constant(np.array([0, 0, heads, width // heads]))
    parts = {}
    for part in ("q", "k", "v"):
        made = graph.linear(hidden, f"{name}_{part}", width, width)
        graph.add("Reshape", [made, split], f"{made}_s")
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        parts[part] = graph.add("Transpose", [f"{made}_s"], f"{made}_t", perm=order)
    graph.add("MatMul", [parts["q"], parts["k"]], f"{name}_scores")
    scale = graph.constant(np.float32(np.sqrt(width / heads)))
    graph.add("Div", [f"{name}_scores", scale], f"{name}_scaled")
    graph.add("Add", [f"{name}_scaled", "bias"], f"{name}_biased")
    graph.add("Softmax", [f"{name}_biased"], f"{name}_shares", axis=-1)
    graph.add("MatMul", [f"{name}_shares", parts["v"]], f"{name}_mixed")
    graph.add("Transpose", [f"{name}_mixed"], f"{name}_back", perm=[0, 2, 1, 3])
    joined = graph.constant(np.array([0, 0, width]))
    graph.add("Reshape", [f"{name}_back", joined], f"{name}_joined")
    out = graph.linear(f"{name}_joined", f"{name}_out", width, width)
    graph.add("Add", [out, hidden], f"{name}_sum")
    return graph.normal(f"{name}_sum", f"{name}_attended", width)


def _feed_forward(graph: _Graph, value: str, name: str, width: int) -> str:
    wide = graph.linear(value, f"{name}_wide", width, 4 * width)
    graph.add("Div", [wide, graph.constant(np.float32(np.sqrt(2.0)))], f"{name}_x")
    graph.add("Erf", [f"{name}_x"], f"{name}_erf")
    graph.add("Add", [f"{name}_erf", graph.constant(np.float32(1))], f"{name}_one")
    graph.add("Mul", [wide, f"{name}_one"], f"{name}_gelu2")
    graph.add("Mul", [f"{name}_gelu2", graph.constant(np.float32(0.5))], f"{name}_gelu")
    narrow = graph.linear(f"{name}_gelu", f"{name}_narrow", 4 * width, width)
    graph.add("Add", [narrow, value], f"{name}_sum2")
    return graph.normal(f"{name}_sum2", f"{name}_hidden", width)
