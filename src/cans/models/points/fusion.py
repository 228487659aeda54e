"""Tensors inside something the runtime executes as one operation; no cut goes through them."""

from __future__ import annotations

from collections.abc import Iterable

from cans.models.onnx.graph import Graph, Node
from cans.models.points.counting import ACTIVATIONS

_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Neg", "Abs", "Cast"})
_NORMALISING = frozenset(
    {"BatchNormalization", "QuantizeLinear", "Identity", "Dropout", "Cast", "BiasGelu"}
)
_SEPARATE = frozenset({"Softmax", "LogSoftmax", "Hardmax"})  # never fused with what precedes them
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "FusedConv"})
_CHEAP = ACTIVATIONS | _ELEMENTWISE | {"Sqrt", "Reciprocal", "Exp"}


class Fusions:
    """Knows which tensors are inside a fusion."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._inside = self._normalisations() | self._softmaxes()

    def broken_by(self, depth: int, alive: Iterable[str]) -> bool:
        """Would a cut after `depth` nodes, with these tensors alive, go through a fusion?"""
        names = tuple(alive)
        if any(name in self._inside for name in names):
            return True
        after = {id(node) for node in self._graph.nodes[depth:]}
        return any(self._continues(name, after) or self._derived(name, names) for name in names)

    def _continues(self, name: str, after: set[int]) -> bool:
        """The operation that makes this tensor goes on in all that read it."""
        maker = self._graph.producer.get(name)
        if maker is None:
            return False
        if maker.kind in ("DequantizeLinear", "Pad", "DynamicQuantizeLinear"):
            return True  # the small side of a dequantisation or padding is before it
        readers = [node for node in self._graph.consumers.get(name, ()) if id(node) in after]
        return all(self._follows(maker, node) for node in readers)

    def _follows(self, maker: Node, node: Node) -> bool:
        if node.kind in _SEPARATE:
            return False
        if node.kind in ACTIVATIONS or node.kind in _NORMALISING:
            return True
        if node.kind == "Mul" and self._rescales(maker):
            return True
        if node.kind == "Add" and maker.kind in _WEIGHTED:
            return True  # a bias, or a residual sum the convolution accumulates into
        return node.kind in _ELEMENTWISE and len(node.inputs) == 1

    def _rescales(self, maker: Node) -> bool:
        """An integer product on its way back to real numbers: cast, then times the scales."""
        source = self._graph.producer.get(maker.inputs[0]) if maker.inputs else None
        return maker.kind == "Cast" and source is not None and source.kind.endswith("Integer")

    def _derived(self, name: str, alive: tuple[str, ...]) -> bool:
        """Cheaply made from other crossing tensors: a cut before it sends less."""
        others = set(alive) - {name}
        stack, steps = [name], 0
        while stack and steps < 32:
            steps += 1
            maker = self._graph.producer.get(stack.pop())
            if maker is None or not (maker.kind in _CHEAP or maker.kind.startswith("Reduce")):
                return False
            stack.extend(each for each in maker.inputs if each not in others)
        return not stack

    def _normalisations(self) -> set[str]:
        inside: set[str] = set()
        for node in self._graph.nodes:
            if node.kind == "Sqrt":
                inside |= self._statistics(node)
        return inside

    def _statistics(self, root: Node) -> set[str]:
        """What lies before √(mean((x - mean(x))²) + ε); RMS normalisation has no inner mean."""
        inside = set(root.outputs)
        variance = self._maker(root, inside)
        if variance is not None and variance.kind in ("Add", "Max", "Clip"):
            variance = self._maker(variance, inside)
        if variance is None or variance.kind != "ReduceMean":
            return set()
        square = self._maker(variance, inside)
        if square is not None and square.kind in ("Pow", "Mul"):
            centred = self._graph.producer.get(square.inputs[0])
            if centred is not None and centred.kind == "Sub":
                inside.update(centred.outputs)
                for name in centred.inputs:
                    mean = self._graph.producer.get(name)
                    if mean is not None and mean.kind == "ReduceMean":
                        inside.add(name)
        return inside

    def _maker(self, node: Node, inside: set[str]) -> Node | None:
        """The node before this one, casts skipped; what lies between is inside."""
        while True:
            if not node.inputs:
                return None
            inside.add(node.inputs[0])
            maker = self._graph.producer.get(node.inputs[0])
            if maker is None or maker.kind != "Cast":
                return maker
            node = maker

    def _softmaxes(self) -> set[str]:
        """exp(x) / sum(exp(x)), spelled out."""
        inside: set[str] = set()
        for node in self._graph.nodes:
            if node.kind != "Div" or len(node.inputs) != 2:
                continue
            total = self._graph.producer.get(node.inputs[1])
            if total is not None and total.kind.startswith("Reduce"):
                made = self._graph.producer.get(node.inputs[0])
                if total.inputs[:1] == node.inputs[:1] and made is not None and made.kind == "Exp":
                    inside |= {node.inputs[0], node.inputs[1]}
        return inside
