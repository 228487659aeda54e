"""VGG-16 (configuration D), and a variant with two early exits."""

from __future__ import annotations

from onnx import ModelProto

from cans.models.builtin.builder import Builder, Recipe

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def build(exits: bool = False, size: int = 224) -> tuple[ModelProto, list[Recipe]]:
    """23 points: input, 13 conv(+ReLU), 5 pools, fc6, fc7, fc8, end."""
    net = Builder("vgg16-exits" if exits else "vgg16", (1, 3, size, size))
    outputs: dict[str, tuple[int, ...]] = {}
    x, channels = "input", 3
    for stage, (width, convs) in enumerate(_STAGES, start=1):
        for index in range(1, convs + 1):
            name = f"conv{stage}_{index}"
            x = net.conv(x, f"{name}.conv", (channels, width), 3, pad=1)
            x = net.point(name, net.op("Relu", [x], name))
            channels = width
        pool = f"pool{stage}"
        x = net.point(pool, net.op("MaxPool", [x], pool, kernel_shape=[2, 2], strides=[2, 2]))
        if exits and stage in (3, 4):
            outputs[_exit_head(net, x, f"exit{stage}", width)] = (1, 1000)
    x = net.op("Flatten", [x], "flatten")
    left = size // 2 ** len(_STAGES)  # pixels across, after the pools
    for name, sizes in (("fc6", (512 * left * left, 4096)), ("fc7", (4096, 4096))):
        x = net.dense(x, f"{name}.dense", sizes)
        x = net.point(name, net.op("Relu", [x], name))
    x = net.point("fc8", net.dense(x, "fc8", (4096, 1000), gain=1.0))
    outputs[net.op("Softmax", [x], "probabilities", axis=1)] = (1, 1000)
    return net.finish(outputs, "end"), net.recipes


def _exit_head(net: Builder, x: str, name: str, width: int) -> str:
    x = net.op("GlobalAveragePool", [x], f"{name}.pool")
    x = net.op("Flatten", [x], f"{name}.flatten")
    x = net.dense(x, f"{name}.dense", (width, 1000), gain=1.0)
    return net.op("Softmax", [x], name, axis=1)
