"""Tensors inside something the runtime executes as one operation; no cut goes through them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cans.models.onnx.graph import Graph, Node
from cans.models.onnx.tensors import Tensor
from cans.models.points.counting import ACTIVATIONS

_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Neg", "Abs", "Cast"})
_NORMALISING = frozenset(
    {"BatchNormalization", "QuantizeLinear", "Identity", "Dropout", "Cast", "BiasGelu"}
)
_SEPARATE = frozenset({"Softmax", "LogSoftmax", "Hardmax"})  # never fused with what precedes them
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "FusedConv"})
_CHEAP = ACTIVATIONS | _ELEMENTWISE | {"Sqrt", "Reciprocal", "Exp"}
_LONGEST_ACTIVATION = 10  # operations


def _one_by_one(node: Node) -> bool:
    return node.kind in _ELEMENTWISE or (node.kind in ACTIVATIONS and node.kind not in _SEPARATE)


class Fusions:
    """Knows which tensors are inside a fusion."""

    def __init__(self, graph: Graph, tensors: Mapping[str, Tensor]) -> None:
        self._graph = graph
        self._tensors = tensors
        self._inside = self._normalisations() | self._softmaxes() | self._activations()

    def broken_by(self, depth: int, alive: Iterable[str], large: Iterable[str]) -> bool:
        """Would a cut after `depth` nodes, with these tensors alive, go through a fusion? Where a
        small one continues, at the side of a large one, nothing is lost."""
        names = tuple(alive)
        if any(name in self._inside for name in names):
            return True
        after = {id(node) for node in self._graph.nodes[depth:]}
        if any(self._continues(name, after) for name in large):
            return True
        return any(self._derived(name, names) for name in names)

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

    def _activations(self) -> set[str]:
        """x * sigmoid(x) and others of several operations: all but what comes out at the end."""
        inside: set[str] = set()
        for node in self._graph.nodes:
            if len(node.outputs) == 1 and len(self._graph.consumers.get(node.outputs[0], ())) > 1:
                inside |= self._joined(node.outputs[0])
        return inside

    def _joined(self, start: str) -> set[str]:
        """What lies between a tensor and where all that is made of it, one number from each,
        comes together again; nothing when it does not."""
        made, taken, joined = {start}, set[int](), False
        for _ in range(_LONGEST_ACTIVATION):
            ready = [
                node
                for name in made
                for node in self._graph.consumers.get(name, ())
                if id(node) not in taken and made.issuperset(node.inputs) and _one_by_one(node)
            ]
            if not ready:
                return set()
            node = ready[0]
            taken.add(id(node))
            made.update(node.outputs)
            joined = joined or len(node.inputs) > 1
            still = {
                name
                for name in made
                if name in self._graph.outputs
                or any(id(each) not in taken for each in self._graph.consumers.get(name, ()))
            }
            if joined and len(still) == 1 and start not in still and self._no_larger(still, start):
                return made - still
        return set()

    def _no_larger(self, names: set[str], than: str) -> bool:
        known = self._tensors
        if than not in known or any(name not in known for name in names):
            return False
        return all(known[name].nbytes <= known[than].nbytes for name in names)

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
