"""How much work each operation is: multiply-accumulates by class, exact from shapes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from math import prod

from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from cans.models.onnx.graph import subgraphs
from cans.models.onnx.tensors import Tensor

_MOST_TURNS = 1 << 20  # more is no count: exporters write the largest integer for "unknown"
CLASSES = ("conv", "linear", "attention", "activation", "other")

_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "QLinearConv", "FusedConv", "DeformConv"})
_PRODUCTS = frozenset(
    {"MatMul", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "MatMulIntegerToFloat"}
    | {"DynamicQuantizeMatMul"}
)
_RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1, "DynamicQuantizeLSTM": 4}
ACTIVATIONS = frozenset(
    {"Relu", "LeakyRelu", "PRelu", "Elu", "Celu", "Selu", "ThresholdedRelu", "Clip", "Softplus"}
    | {"Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Gelu", "FastGelu", "QuickGelu", "Erf"}
    | {"Softsign", "Mish", "Swish", "Silu", "Softmax", "LogSoftmax", "Hardmax"}
)
# They move or rename data and compute nothing.
LAYOUT = frozenset(
    {"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Cast"}
    | {"Split", "Slice", "Concat", "Shape", "Size", "Expand", "Gather", "Constant"}
    | {"ConstantOfShape"}
)


@dataclass(frozen=True)
class Work:
    """What one operation costs, by class: MACs (elements for the last two classes) and counts."""

    amount: tuple[int, ...]
    ops: tuple[int, ...]

    def times(self, turns: int) -> Work:
        return Work(
            tuple(turns * each for each in self.amount), tuple(turns * each for each in self.ops)
        )

    def __add__(self, other: Work) -> Work:
        return Work(
            tuple(a + b for a, b in zip(self.amount, other.amount, strict=True)),
            tuple(a + b for a, b in zip(self.ops, other.ops, strict=True)),
        )


NO_WORK = Work((0,) * len(CLASSES), (0,) * len(CLASSES))


def work_of(
    node: NodeProto,
    tensors: Mapping[str, Tensor],
    constants: Container[str],
    values: Mapping[str, TensorProto] | None = None,
) -> Work:
    """Count one node. Of a conditional the heaviest branch counts; of a loop every turn, or one
    when their number is not known beforehand. `values`: where the number may stand."""
    bodies = [body_work(body, tensors, constants, values) for body in subgraphs(node)]
    if bodies:
        heaviest = max(bodies, key=lambda work: sum(work.amount))
        return heaviest.times(_turns(node, tensors, values or {}))
    kind, amount = _classify(node, tensors, constants)
    one = [int(kind == each) for each in CLASSES]
    return Work(tuple(amount * here for here in one), tuple(one))


def _turns(
    node: NodeProto, tensors: Mapping[str, Tensor], values: Mapping[str, TensorProto]
) -> int:
    if node.op_type == "Loop" and node.input[0] in values:
        turns = int(numpy_helper.to_array(values[node.input[0]]).reshape(-1)[0])
        return turns if 0 <= turns <= _MOST_TURNS else 1
    if node.op_type == "Scan":
        scanned = node.input[-1]
        shape = tensors[scanned].shape if scanned in tensors else ()
        axes = [i for each in node.attribute if each.name == "scan_input_axes" for i in each.ints]
        axis = axes[-1] if axes else 0
        return shape[axis] if -len(shape) <= axis < len(shape) else 1
    return 1


def body_work(
    body: GraphProto,
    tensors: Mapping[str, Tensor],
    constants: Container[str],
    values: Mapping[str, TensorProto] | None = None,
) -> Work:
    inner = _Either({each.name for each in body.initializer}, constants)
    total = NO_WORK
    for node in body.node:
        total = total + work_of(node, tensors, inner, values)
    return total


class _Either:
    """Constant in a body, or in the graph around it."""

    def __init__(self, inner: set[str], outer: Container[str]) -> None:
        self._inner, self._outer = inner, outer

    def __contains__(self, name: object) -> bool:
        return name in self._inner or name in self._outer


def _classify(
    node: NodeProto, tensors: Mapping[str, Tensor], constants: Container[str]
) -> tuple[str, int]:
    kind = node.op_type

    def shape(index: int, names: object = node.input) -> tuple[int, ...]:
        name = names[index] if index < len(names) else ""  # type: ignore[index,arg-type]
        return tensors[name].shape if name in tensors else ()

    out = shape(0, node.output)
    if node.output and node.output[0] not in tensors:
        out = (1,)  # not known (in the body of a loop): at least one row, one place
    if kind in _CONVOLUTIONS:
        weight = shape(3 if kind == "QLinearConv" else 1)
        places = prod(out) if node.output[0] in tensors else weight[0] if weight else 0
        return "conv", places * prod(weight[1:])
    if kind == "ConvTranspose":
        return "conv", prod(shape(0)) * prod(shape(1)[1:])
    if kind == "Gemm":
        a = shape(0)
        inner = a[0] if _attribute(node, "transA", 0) else a[-1] if a else 0
        return _linear_or_attention(node, constants, (0, 1)), prod(out) * inner
    if kind in _PRODUCTS:
        second = 3 if kind == "QLinearMatMul" else 1
        a = shape(0)
        inner = a[-2] if _attribute(node, "transA", 0) else a[-1] if a else 0
        if node.output[0] not in tensors:
            return _linear_or_attention(node, constants, (0, second)), prod(shape(second))
        return _linear_or_attention(node, constants, (0, second)), prod(out) * inner
    if kind == "MatMulNBits":
        return "linear", prod(out) * int(_attribute(node, "K", 0))
    if kind == "Einsum":
        return _linear_or_attention(node, constants, (0, 1)), _einsum(node, tensors)
    if kind in _RECURRENT:
        return "linear", _recurrent(node, shape(0), _RECURRENT[kind])
    if kind in ("Attention", "MultiHeadAttention", "GroupQueryAttention"):
        return "attention", _attention(node, tensors)
    if kind in ACTIVATIONS:
        return "activation", prod(out)
    return "other", 0 if kind in LAYOUT else prod(out)


def _attribute(node: NodeProto, name: str, default: int) -> int:
    for each in node.attribute:
        if each.name == name:
            return int(helper.get_attribute_value(each))
    return default


def _linear_or_attention(
    node: NodeProto, constants: Container[str], operands: tuple[int, int]
) -> str:
    """A product with a weight is a linear layer; of two activations (QK^T, AV), attention."""
    names = [node.input[i] for i in operands if i < len(node.input)]
    return "linear" if any(name in constants for name in names) else "attention"


def _einsum(node: NodeProto, tensors: Mapping[str, Tensor]) -> int:
    equation = next(
        (helper.get_attribute_value(e) for e in node.attribute if e.name == "equation"), b""
    )
    sizes: dict[str, int] = {}
    terms = equation.decode().replace(" ", "").split("->")[0].split(",")
    for term, name in zip(terms, node.input, strict=False):
        shape = tensors[name].shape if name in tensors else ()
        named, _, tail = term.partition("...")
        sizes.update(zip(named, shape, strict=False))
        if tail:
            sizes.update(zip(reversed(tail), reversed(shape), strict=False))
        if "..." in term:
            spread = shape[len(named) : len(shape) - len(tail)]
            sizes["..."] = max(sizes.get("...", 1), prod(spread))
    return prod(sizes.values()) if sizes else 0


def _recurrent(node: NodeProto, x: tuple[int, ...], gates: int) -> int:
    hidden = _attribute(node, "hidden_size", 0)
    both = any(e.name == "direction" and e.s == b"bidirectional" for e in node.attribute)
    steps = x[0] * x[1] if len(x) == 3 else 0
    return (2 if both else 1) * steps * gates * hidden * ((x[-1] if x else 0) + hidden)


def _attention(node: NodeProto, tensors: Mapping[str, Tensor]) -> int:
    """QK^T and AV of a fused attention on (batch, tokens, width) or (batch, heads, tokens, width).

    The com.microsoft form `Attention` projects its input first; that product counts here too.
    """
    shapes = [tensors[n].shape if n in tensors else () for n in node.input[:3]]
    if not shapes or len(shapes[0]) < 3:
        return 0
    query = shapes[0]
    if node.domain == "com.microsoft" and node.op_type == "Attention":
        batch, tokens, width = query
        mixed = shapes[1][-1] if len(shapes) > 1 and shapes[1] else 3 * width
        return batch * tokens * (width * mixed + 2 * tokens * mixed // 3)
    keys = shapes[1][-2] if len(shapes) > 1 and len(shapes[1]) >= 3 else query[-2]
    return 2 * prod(query) * keys
