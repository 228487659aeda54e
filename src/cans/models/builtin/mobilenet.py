"""MobileNetV2, width 1.0; batch normalisation folded."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from cans.models.builtin.builder import Builder, Recipe

# expansion, channels, blocks, stride of the first block
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def build() -> tuple[ModelProto, list[Recipe]]:
    """22 points: input, stem, 17 inverted residual blocks, last convolution, pool, fc (the end)."""
    net = Builder("mobilenet_v2", (1, 3, 224, 224))
    net.constant("zero", np.array(0, np.float32))
    net.constant("six", np.array(6, np.float32))
    x = net.conv("input", "stem.conv", (3, 32), 3, stride=2, pad=1)
    x = net.point("stem", _relu6(net, x, "stem"))
    channels = 32
    for stage, (expansion, width, blocks, first_stride) in enumerate(_STAGES, start=1):
        for index in range(1, blocks + 1):
            stride = first_stride if index == 1 else 1
            name = f"block{stage}.{index}"
            x = net.point(name, _block(net, x, name, (channels, width), expansion, stride))
            channels = width
    x = net.point("last", _relu6(net, net.conv(x, "last.conv", (320, 1280), 1), "last"))
    x = net.point("avgpool", net.op("GlobalAveragePool", [x], "avgpool"))
    x = net.dense(net.op("Flatten", [x], "flatten"), "logits", (1280, 1000), gain=1.0)
    return net.finish({x: (1, 1000)}, "fc"), net.recipes


def _relu6(net: Builder, x: str, name: str) -> str:
    return net.op("Clip", [x, "zero", "six"], name)


def _block(
    net: Builder, x: str, name: str, channels: tuple[int, int], expansion: int, stride: int
) -> str:
    inside = channels[0] * expansion
    y = x
    if expansion > 1:
        y = _relu6(net, net.conv(y, f"{name}.expand", (channels[0], inside), 1), f"{name}.relu1")
    y = net.conv(y, f"{name}.depthwise", (inside, inside), 3, stride=stride, pad=1, group=inside)
    y = _relu6(net, y, f"{name}.relu2")
    residual = stride == 1 and channels[0] == channels[1]
    y = net.conv(y, f"{name}.project", (inside, channels[1]), 1, gain=0.7 if residual else 1.4)
    return net.op("Add", [x, y], f"{name}.sum") if residual else y
