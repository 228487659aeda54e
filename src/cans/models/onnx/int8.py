"""Signed 8-bit activations, written unsigned where ONNX Runtime would do so itself.

On x86 the runtime turns a lone pair QuantizeLinear -> DequantizeLinear from int8 to uint8 (zero
point + 128), because its products of unsigned by signed numbers are faster. Between two halves it
cannot see the pair, would leave it signed, and round differently from the whole model. So the
pairs are rewritten before the model is cut; the values they stand for are the same.
"""

from __future__ import annotations

import platform
from collections import Counter

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from cans.models.onnx.graph import reads

_OFFSET = 128


def unsign_pairs(graph: onnx.GraphProto) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    readers = Counter(name for node in graph.node for name in reads(node))
    readers.update(each.name for each in graph.output)
    makers = {name: node for node in graph.node for name in node.output}
    zeros = {each.name: each for each in graph.initializer}
    for node in graph.node:
        if node.op_type != "DequantizeLinear":
            continue
        quantize = makers.get(node.input[0])
        if quantize is None or quantize.op_type != "QuantizeLinear":
            continue
        if readers[node.input[0]] == 1 and readers[node.output[0]] == 1:
            _unsign(graph, quantize, node, zeros)


def _unsign(
    graph: onnx.GraphProto,
    quantize: NodeProto,
    dequantize: NodeProto,
    zeros: dict[str, onnx.TensorProto],
) -> None:
    pair = (quantize, dequantize)
    if any(len(node.input) < 3 or node.input[2] not in zeros for node in pair):
        return
    first, second = (numpy_helper.to_array(zeros[node.input[2]]) for node in pair)
    if first.dtype != np.int8 or second.dtype != np.int8 or not np.array_equal(first, second):
        return
    name = f"{quantize.output[0]}/unsigned_zero_point"
    shifted = (first.astype(np.int16) + _OFFSET).astype(np.uint8)
    graph.initializer.append(numpy_helper.from_array(shifted, name))
    for node in pair:
        node.input[2] = name
