"""Dedicated halves: one fused session per side of a point, kept within a memory budget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from cans.models.onnx.graph import Node
from cans.models.onnx.model import Model
from cans.models.points.points import Point
from cans.models.run.batching import free_rows
from cans.models.run.runtime import RuntimeOptions
from cans.models.run.sessions import Session, open_session
from cans.models.run.slicing import PRODUCTS, cut_out, worth_packing

FRONT, BACK = "front", "back"
BATCH = "batch"  # a back-end for any number of rows
Key = tuple[str, int]  # side, point index
_LEAST_BUDGET = 256 << 20
_COPIES = 1.5  # memory of a chain of blocks, in units of all weights
_AROUND_COPIES = 2.5  # memory of a fused half, in units of the weights that it copies
_LIBRARY = 16 << 20  # bytes of the runtime itself, with the first session
_TENSORS_AT_ONCE = 4  # of the largest size: inputs, outputs and what kernels work on


@dataclass(frozen=True)
class Dedicated:
    """A fused half and how long it takes relative to the chain of blocks."""

    session: Session
    cost: int  # bytes it keeps for itself
    ratio: float


class HalfCache:
    """The halves in use; the one unused for longest goes when memory is short. Thread-safe."""

    def __init__(self, model: Model, runtime: RuntimeOptions, budget: int | None) -> None:
        self._model = model
        self._runtime = runtime
        self._lock = Lock()
        self._kept: OrderedDict[Key, Dedicated] = OrderedDict()
        weights = sum(model.weight_bytes(each) for each in model.graph.initializers)
        self.budget = max(_LEAST_BUDGET, weights) if budget is None else budget

    def get(self, key: Key) -> Dedicated | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def build(self, start: int, stop: int, batched: bool = False) -> tuple[Session, int] | None:
        """A fused session over nodes `start` to `stop`; None when the budget can never hold it.
        `batched`: for any number of rows; None also if its inputs have none."""
        nodes = self._model.graph.nodes[start:stop]
        cost = private_bytes(self._model, nodes, self._runtime.on_cpu)
        if cost > self.budget:
            return None
        piece = cut_out(self._model, start, stop)
        if batched:
            freed = free_rows(piece, self._model)
            if freed is None:
                return None
            piece = freed
        return open_session(piece, self._model.weights, self._runtime), cost

    def put(self, key: Key, dedicated: Dedicated) -> None:
        with self._lock:
            self._kept.pop(key, None)
            used = sum(each.cost for each in self._kept.values())
            while self._kept and used + dedicated.cost > self.budget:
                _, dropped = self._kept.popitem(last=False)
                used -= dropped.cost
            self._kept[key] = dedicated

    def ratios(self, side: str) -> list[float]:
        with self._lock:
            return [each.ratio for (kept, _), each in self._kept.items() if kept == side]


def private_bytes(model: Model, nodes: tuple[Node, ...], mapped: bool = True) -> int:
    """Weights a session copies; products that are not packed read theirs from the mapped file,
    unless the provider keeps copies of its own (not `mapped`)."""
    packed = not mapped or worth_packing(model, nodes)
    copied = {
        name for node in nodes if packed or node.kind not in PRODUCTS for name in node.constants
    }
    return sum(model.weight_bytes(name) for name in copied)


def chain_bytes(model: Model, points: Sequence[Point], local: bool = True) -> int:
    """About what a chain of blocks over all of the model takes: its weights and copies of some, as
    measured (ResNet-50, VGG-16, MobileNetV2), and the largest tensors of a run."""
    depth = points[-1 if local else -2].depth
    nodes = model.graph.nodes[:depth]
    weights = {name for node in nodes for name in node.constants}
    made = [model.tensors[name] for node in nodes for name in node.outputs if name in model.tensors]
    largest = max((each.nbytes for each in made), default=0)
    held = sum(map(model.weight_bytes, weights))
    return int(_COPIES * held) + _TENSORS_AT_ONCE * largest + _LIBRARY


def halves_within(nbytes: int) -> int:
    """The budget of fused halves that take no more than this in all. A session takes more than the
    weights that it copies, and one that is built stands beside one that goes."""
    return int(nbytes / _AROUND_COPIES)
