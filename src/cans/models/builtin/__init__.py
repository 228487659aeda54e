"""The built-in networks: graphs written in Python, weights made from a seed when needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import onnx
from onnx import helper

from cans.models.builtin import mobilenet, resnet, vgg, vit
from cans.models.builtin.builder import Recipe

_SEED = 1
_USUAL_INPUT = [1, 3, 224, 224]
_MAKERS: dict[str, Callable[[], tuple[onnx.ModelProto, list[Recipe]]]] = {
    "vgg16": vgg.build,
    "resnet50": resnet.build,
    "vit_b16": vit.build,
    "mobilenet_v2": mobilenet.build,
    "vgg16-exits": partial(vgg.build, exits=True),
    # on pictures of 96 pixels: work and what crosses shrink alike, so a testbed has more rounds
    "vgg16-96": partial(vgg.build, size=96),
    "resnet50-96": partial(resnet.build, size=96),
    "vit_b16-96": partial(vit.build, size=96),
}
NAMES = tuple(_MAKERS)


@dataclass(frozen=True)
class BuiltIn:
    """A skeleton and the recipes of its weights."""

    name: str
    proto: onnx.ModelProto
    recipes: tuple[Recipe, ...]
    seed: int
    digest: str


def build(name: str) -> BuiltIn:
    proto, recipes = _MAKERS[name]()
    digest = _digest(proto, recipes, _SEED)
    return BuiltIn(name, proto, tuple(recipes), _SEED, digest)


def _digest(proto: onnx.ModelProto, recipes: list[Recipe], seed: int) -> str:
    """Of structure and recipes, spelled out: equal on every version of onnx and protobuf."""
    nodes = [
        [n.op_type, list(n.input), list(n.output), sorted(_attributes(n).items())]
        for n in proto.graph.node
    ]
    weights = [[each.name, each.shape, round(each.bound, 9)] for each in recipes]
    shape = [each.dim_value for each in proto.graph.input[0].type.tensor_type.shape.dim]
    unusual = [] if shape == _USUAL_INPUT else [shape]
    text = json.dumps([nodes, weights, seed, *unusual], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _attributes(node: onnx.NodeProto) -> dict[str, object]:
    values = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return {
        name: [int(v) for v in value] if hasattr(value, "__iter__") else round(float(value), 9)
        for name, value in values.items()
    }
