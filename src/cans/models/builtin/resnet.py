"""ResNet-50 with the stride in the 3x3 convolution; batch normalisation folded."""

from __future__ import annotations

from onnx import ModelProto

from cans.models.builtin.builder import Builder, Recipe

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_EXPANSION = 4


def build(size: int = 224) -> tuple[ModelProto, list[Recipe]]:
    """20 points: input, stem, 16 bottlenecks, avgpool, fc (the end)."""
    net = Builder("resnet50", (1, 3, size, size))
    x = net.conv("input", "stem.conv", (3, 64), 7, stride=2, pad=3)
    x = net.op("Relu", [x], "stem.relu")
    x = net.op("MaxPool", [x], "stem", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    net.point("stem", x)
    channels = 64
    for stage, (width, blocks) in enumerate(_STAGES, start=1):
        for index in range(1, blocks + 1):
            stride = 2 if stage > 1 and index == 1 else 1
            x = _bottleneck(net, x, f"layer{stage}.{index}", channels, width, stride)
            channels = width * _EXPANSION
    x = net.point("avgpool", net.op("GlobalAveragePool", [x], "avgpool"))
    x = net.dense(net.op("Flatten", [x], "flatten"), "logits", (2048, 1000), gain=1.0)
    return net.finish({x: (1, 1000)}, "fc"), net.recipes


def _bottleneck(net: Builder, x: str, name: str, channels: int, width: int, stride: int) -> str:
    out = width * _EXPANSION
    shortcut = x
    if channels != out:
        shortcut = net.conv(x, f"{name}.shortcut", (channels, out), 1, stride=stride, gain=1.0)
    y = net.op("Relu", [net.conv(x, f"{name}.conv1", (channels, width), 1)], f"{name}.relu1")
    y = net.conv(y, f"{name}.conv2", (width, width), 3, stride=stride, pad=1)
    y = net.op("Relu", [y], f"{name}.relu2")
    # A small last gain: sixteen residual sums would otherwise double the variance sixteen times.
    y = net.conv(y, f"{name}.conv3", (width, out), 1, gain=0.5)
    return net.point(name, net.op("Relu", [net.op("Add", [y, shortcut], f"{name}.sum")], name))
