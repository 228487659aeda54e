"""A small writer of ONNX graphs whose weights are recipes, made only when something runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20  # the first with both LayerNormalization and Gelu
IR_VERSION = 9
POINTS_KEY = "cans.points"  # metadata of a file that declares its own partition points


@dataclass(frozen=True)
class Recipe:
    """How one weight tensor is made: uniform in ±bound, from a stream of its own."""

    name: str
    shape: tuple[int, ...]
    bound: float

    @property
    def elements(self) -> int:
        return prod(self.shape)


class Builder:
    """Collects nodes and recipes; `finish` gives the skeleton (a model without its weights)."""

    def __init__(self, name: str, input_shape: tuple[int, ...]) -> None:
        self.name = name
        self.recipes: list[Recipe] = []
        self.points: list[tuple[str, str]] = []
        self._nodes: list[onnx.NodeProto] = []
        self._small: list[TensorProto] = []
        self._input = helper.make_tensor_value_info("input", TensorProto.FLOAT, input_shape)

    def op(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def split(self, x: str, outputs: list[str], axis: int) -> list[str]:
        self._nodes.append(
            helper.make_node("Split", [x], outputs, name=outputs[0], axis=axis, num_outputs=3)
        )
        return outputs

    def weight(self, name: str, shape: tuple[int, ...], bound: float) -> str:
        self.recipes.append(Recipe(name, shape, bound))
        return name

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        self._small.append(numpy_helper.from_array(value, name))
        return name

    def conv(
        self,
        x: str,
        name: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        group: int = 1,
        gain: float = sqrt(2),
    ) -> str:
        """A convolution with bias (a folded batch normalisation looks the same)."""
        fan_in = channels[0] // group * kernel * kernel
        shape = (channels[1], channels[0] // group, kernel, kernel)
        weight = self.weight(f"{name}.weight", shape, gain * sqrt(3 / fan_in))
        bias = self.weight(f"{name}.bias", (channels[1],), 0.05)
        return self.op(
            "Conv",
            [x, weight, bias],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=group,
        )

    def dense(self, x: str, name: str, sizes: tuple[int, int], gain: float = sqrt(2)) -> str:
        """A fully connected layer on a matrix."""
        weight = self.weight(f"{name}.weight", (sizes[1], sizes[0]), gain * sqrt(3 / sizes[0]))
        bias = self.weight(f"{name}.bias", (sizes[1],), 0.05)
        return self.op("Gemm", [x, weight, bias], name, transB=1)

    def point(self, name: str, tensor: str) -> str:
        """Declare that the paper cuts the network at this tensor."""
        self.points.append((name, tensor))
        return tensor

    def finish(self, outputs: dict[str, tuple[int, ...]], last_point: str) -> onnx.ModelProto:
        initializers = [_without_data(recipe) for recipe in self.recipes] + self._small
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [self._input],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in outputs.items()
            ],
            initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        model.producer_name = "cans"
        declared = {"input": "input", **dict(self.points), last_point: ""}
        helper.set_model_props(model, {POINTS_KEY: json.dumps(declared)})
        return model


def _without_data(recipe: Recipe) -> TensorProto:
    tensor = TensorProto(name=recipe.name, data_type=TensorProto.FLOAT, dims=recipe.shape)
    tensor.data_location = TensorProto.EXTERNAL
    return tensor
