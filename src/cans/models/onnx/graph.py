"""The network as a DAG: what each node reads and writes, what never changes, in which order.

Nodes computed from constants alone (a transposed weight, a dequantised one) are not part of the
order: whichever half needs such a tensor carries the nodes that make it, so it never crosses a cut.
The same goes for what is cheap to make from an input that is smaller (an attention mask from the
token mask): the input crosses, and each half makes it anew.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from cans.models.onnx.tensors import Tensor

# Their result differs from run to run: never treated as constant although they read nothing.
RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial"}
    | {"Bernoulli"}
)
# Nothing but comparing, casting and rearranging: what a mask is made of.
_CHEAP_TO_MAKE = frozenset(
    {"Cast", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Slice", "Concat", "Tile"}
    | {"Equal", "Not", "And", "Or", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Where"}
    | {"Add", "Sub", "Mul", "Div", "Neg", "Min", "Max", "CumSum", "Trilu", "ConstantOfShape"}
)


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The bodies of a control-flow node."""
    found = [each.g for each in node.attribute if each.type == AttributeProto.GRAPH]
    for each in node.attribute:
        if each.type == AttributeProto.GRAPHS:
            found.extend(each.graphs)
    return found


def captured(graph: GraphProto) -> set[str]:
    """Names a body reads from the graph around it."""
    own = {each.name for each in graph.input} | {each.name for each in graph.initializer}
    own |= {each.values.name for each in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    used = {each.name for each in graph.output}
    for node in graph.node:
        used.update(reads(node))
    return used - own - {""}


def reads(node: NodeProto) -> tuple[str, ...]:
    """Every tensor a node needs: its inputs and what its bodies capture, each once."""
    names = [name for name in node.input if name]
    for body in subgraphs(node):
        names.extend(sorted(captured(body)))
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Node:
    """One operation; `inputs` are the tensors that change from run to run."""

    proto: NodeProto = field(repr=False)
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    remade: tuple[str, ...] = ()  # made anew from the model's inputs in each half; those are inputs

    @property
    def kind(self) -> str:
        return self.proto.op_type


@dataclass(frozen=True)
class Graph:
    """Scheduled nodes; a prefix of `nodes` is always a front-end that can run by itself."""

    nodes: tuple[Node, ...]
    constant_nodes: Mapping[str, NodeProto]
    initializers: Mapping[str, TensorProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    remade_nodes: Mapping[str, NodeProto] = field(default_factory=dict)

    @cached_property
    def producer(self) -> dict[str, Node]:
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def consumers(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def is_constant(self, name: str) -> bool:
        return name in self.initializers or name in self.constant_nodes

    def constants_behind(self, names: Iterable[str]) -> tuple[list[NodeProto], set[str]]:
        """The nodes (in order) and initializers that the named tensors, constant or made anew, are
        made of."""
        nodes: list[NodeProto] = []
        leaves: set[str] = set()
        seen: set[str] = set()
        # Post-order without recursion: chains of constant nodes may be long.
        stack = [(name, False) for name in sorted(set(names), reverse=True)]
        while stack:
            name, expanded = stack.pop()
            if name in self.initializers:
                leaves.add(name)
                continue
            node = self.constant_nodes.get(name) or self.remade_nodes.get(name)
            if node is None:  # an input of the model
                continue
            if expanded:
                nodes.append(node)
            elif node.output[0] not in seen:
                seen.add(node.output[0])
                stack.append((name, True))
                stack.extend((each, False) for each in reads(node))
        return nodes, leaves

    def crossings(self) -> list[tuple[str, ...]]:
        """What is alive after each prefix: made (or given) before it and needed after it."""
        last_use = {name: i for i, node in enumerate(self.nodes) for name in node.inputs}
        alive = [name for name in self.inputs if name in last_use]
        found = [tuple(alive)]
        for i, node in enumerate(self.nodes):
            alive = [name for name in alive if last_use[name] > i]
            alive += [name for name in node.outputs if last_use.get(name, -1) > i]
            found.append(tuple(alive))
        return found


def build_graph(proto: onnx.GraphProto, tensors: Mapping[str, Tensor]) -> Graph:
    """Split constants from activations, drop what no output needs, and schedule the rest."""
    initializers = {each.name: each for each in proto.initializer}
    inputs = tuple(each.name for each in proto.input if each.name not in initializers)
    outputs = tuple(each.name for each in proto.output)
    needed = _needed_nodes(proto, outputs)
    constant_nodes: dict[str, NodeProto] = {}
    nodes: list[Node] = []
    for node in needed:
        names = reads(node)
        fixed = tuple(n for n in names if n in initializers or n in constant_nodes)
        if len(fixed) == len(names) and node.op_type not in RANDOM:
            constant_nodes.update((name, node) for name in node.output if name)
        else:
            moving = tuple(n for n in names if n not in fixed)
            nodes.append(Node(node, moving, fixed, tuple(n for n in node.output if n)))
    remade = _worth_remaking(nodes, inputs, outputs, tensors)
    nodes = [_reading_inputs(node, remade) for node in nodes if node.outputs[0] not in remade]
    makers = {name: made.proto for name, (made, _) in remade.items()}
    return Graph(tuple(schedule(nodes)), constant_nodes, initializers, inputs, outputs, makers)


def _worth_remaking(
    nodes: list[Node],
    inputs: Iterable[str],
    outputs: Iterable[str],
    tensors: Mapping[str, Tensor],
) -> dict[str, tuple[Node, frozenset[str]]]:
    """Tensors that many nodes read and that are cheap to make from whole-number inputs which are
    smaller; with what leads to them. Name -> its maker, and the inputs it comes from."""
    sources = {
        name: frozenset([name])
        for name in inputs
        if name in tensors and np.dtype(tensors[name].dtype).kind in "iub"
    }
    cheap: dict[str, Node] = {}
    for node in nodes:
        known = all(name in sources for name in node.inputs)
        if node.kind in _CHEAP_TO_MAKE and known and not set(node.outputs) & set(outputs):
            for name in node.outputs:
                cheap[name] = node
                sources[name] = frozenset().union(*(sources[each] for each in node.inputs))
    readers = Counter(n for node in nodes if node.outputs[0] not in cheap for n in node.inputs)
    stack = [
        name
        for name in cheap
        if readers[name] > 1
        and name in tensors
        and sum(tensors[each].nbytes for each in sources[name]) <= tensors[name].nbytes
    ]
    found: dict[str, tuple[Node, frozenset[str]]] = {}
    while stack:
        name = stack.pop()
        if name in cheap and name not in found:
            found |= {each: (cheap[name], sources[each]) for each in cheap[name].outputs}
            stack.extend(cheap[name].inputs)
    return found


def _reading_inputs(node: Node, remade: Mapping[str, tuple[Node, frozenset[str]]]) -> Node:
    """The node as it is when what is made anew is replaced by the inputs that it is made of."""
    anew = tuple(name for name in node.inputs if name in remade)
    if not anew:
        return node
    names = [name for name in node.inputs if name not in remade]
    names += sorted(frozenset().union(*(remade[name][1] for name in anew)))
    return replace(node, inputs=tuple(dict.fromkeys(names)), remade=anew)


def _needed_nodes(proto: onnx.GraphProto, outputs: Iterable[str]) -> list[NodeProto]:
    maker = {name: i for i, node in enumerate(proto.node) for name in node.output if name}
    wanted: set[int] = set()
    stack = [maker[name] for name in outputs if name in maker]
    while stack:
        index = stack.pop()
        if index not in wanted:
            wanted.add(index)
            stack.extend(maker[name] for name in reads(proto.node[index]) if name in maker)
    return [proto.node[i] for i in sorted(wanted)]


def schedule(nodes: list[Node]) -> list[Node]:
    """Order the nodes so that as few tensors as possible are alive between them.

    Among the nodes that can run, the one with the fewest descendants goes first: a side branch
    (an early exit) is finished before the main path goes on, so it keeps no tensor alive, and
    inside parallel branches the order is depth-first.
    """
    producer = {name: i for i, node in enumerate(nodes) for name in node.outputs}
    parents = [{producer[n] for n in node.inputs if n in producer} for node in nodes]
    children: list[list[int]] = [[] for _ in nodes]
    for i, above in enumerate(parents):
        for parent in above:
            children[parent].append(i)
    below = [0] * len(nodes)  # bit sets of descendants
    for i in range(len(nodes) - 1, -1, -1):
        for child in children[i]:
            below[i] |= below[child] | (1 << child)
    rank = [(bits.bit_count(), i) for i, bits in enumerate(below)]
    waiting = [len(above) for above in parents]
    ready = [rank[i] for i, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(nodes[i])
        for child in children[i]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, rank[child])
    return order
