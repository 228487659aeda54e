"""ViT-B/16 (Dosovitskiy et al.), class token, pre-normalisation."""

from __future__ import annotations

from math import sqrt

import numpy as np
from onnx import ModelProto

from cans.models.builtin.builder import Builder, Recipe

_WIDTH, _HEADS, _HIDDEN, _BLOCKS, _PATCH = 768, 12, 3072, 12, 16
_HEAD_WIDTH = _WIDTH // _HEADS


def build(size: int = 224) -> tuple[ModelProto, list[Recipe]]:
    """15 points: input, patch embedding, 12 encoder blocks, head (the end)."""
    net = Builder("vit_b16", (1, 3, size, size))
    tokens = (size // _PATCH) ** 2 + 1
    net.constant("shape.patches", np.array([1, _WIDTH, tokens - 1], np.int64))
    net.constant("shape.heads", np.array([1, tokens, _HEADS, _HEAD_WIDTH], np.int64))
    net.constant("shape.tokens", np.array([1, tokens, _WIDTH], np.int64))
    net.constant("scale", np.array(1 / sqrt(_HEAD_WIDTH), np.float32))
    net.constant("class.index", np.array(0, np.int64))
    net.constant("norm.scale", np.ones(_WIDTH, np.float32))
    x = net.conv("input", "patches.conv", (3, _WIDTH), _PATCH, stride=_PATCH, gain=1.0)
    x = net.op("Reshape", [x, "shape.patches"], "patches.flat")
    x = net.op("Transpose", [x], "patches.rows", perm=[0, 2, 1])
    token = net.weight("class.token", (1, 1, _WIDTH), 1.0)
    x = net.op("Concat", [token, x], "tokens", axis=1)
    x = net.op("Add", [x, net.weight("positions", (1, tokens, _WIDTH), 0.5)], "embedding")
    net.point("embedding", x)
    for index in range(1, _BLOCKS + 1):
        x = net.point(f"block{index}", _encoder(net, x, f"block{index}"))
    x = net.op("Gather", [_norm(net, x, "norm"), "class.index"], "class", axis=1)
    x = net.dense(x, "logits", (_WIDTH, 1000), gain=1.0)
    return net.finish({x: (1, 1000)}, "head"), net.recipes


def _norm(net: Builder, x: str, name: str) -> str:
    bias = net.weight(f"{name}.bias", (_WIDTH,), 0.05)
    return net.op("LayerNormalization", [x, "norm.scale", bias], name, axis=-1, epsilon=1e-6)


def _linear(net: Builder, x: str, name: str, sizes: tuple[int, int], gain: float) -> str:
    weight = net.weight(f"{name}.weight", sizes, gain * sqrt(3 / sizes[0]))
    bias = net.weight(f"{name}.bias", (sizes[1],), 0.05)
    return net.op("Add", [net.op("MatMul", [x, weight], f"{name}.product"), bias], name)


def _heads(net: Builder, x: str, name: str, perm: list[int]) -> str:
    return net.op(
        "Transpose", [net.op("Reshape", [x, "shape.heads"], f"{name}.split")], name, perm=perm
    )


def _attention(net: Builder, x: str, name: str) -> str:
    mixed = _linear(net, x, f"{name}.qkv", (_WIDTH, 3 * _WIDTH), 1.0)
    q, k, v = net.split(mixed, [f"{name}.{each}" for each in "qkv"], axis=2)
    q = _heads(net, q, f"{name}.queries", [0, 2, 1, 3])
    k = _heads(net, k, f"{name}.keys", [0, 2, 3, 1])
    v = _heads(net, v, f"{name}.values", [0, 2, 1, 3])
    scores = net.op("Mul", [net.op("MatMul", [q, k], f"{name}.qk"), "scale"], f"{name}.scores")
    weights = net.op("Softmax", [scores], f"{name}.softmax", axis=-1)
    x = net.op("MatMul", [weights, v], f"{name}.av")
    x = net.op("Transpose", [x], f"{name}.merged", perm=[0, 2, 1, 3])
    x = net.op("Reshape", [x, "shape.tokens"], f"{name}.tokens")
    return _linear(net, x, f"{name}.out", (_WIDTH, _WIDTH), 0.5)


def _encoder(net: Builder, x: str, name: str) -> str:
    attended = _attention(net, _norm(net, x, f"{name}.norm1"), f"{name}.attention")
    x = net.op("Add", [x, attended], f"{name}.middle")
    y = _linear(net, _norm(net, x, f"{name}.norm2"), f"{name}.mlp1", (_WIDTH, _HIDDEN), 1.0)
    y = net.op("Gelu", [y], f"{name}.gelu")
    return net.op("Add", [x, _linear(net, y, f"{name}.mlp2", (_HIDDEN, _WIDTH), 0.7)], name)
