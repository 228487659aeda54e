"""Dedicated halves: one fused session per side of a point, kept within a memory budget."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from cans.models.onnx.graph import Node
from cans.models.onnx.model import Model
from cans.models.run.runtime import RuntimeOptions
from cans.models.run.sessions import Session, open_session
from cans.models.run.slicing import PRODUCTS, cut_out, worth_packing

FRONT, BACK = "front", "back"
Key = tuple[str, int]  # side, point index
_LEAST_BUDGET = 256 << 20


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

    def build(self, start: int, stop: int) -> tuple[Session, int] | None:
        """A fused session over nodes `start` to `stop`; None when the budget can never hold it."""
        nodes = self._model.graph.nodes[start:stop]
        cost = private_bytes(self._model, nodes, self._runtime.on_cpu)
        if cost > self.budget:
            return None
        piece = cut_out(self._model, start, stop)
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
