"""Partition points: where a network can be cut, and what lies on each side of the cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cans.errors import InputError, ModelError
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.cost import Half
from cans.models.points.counting import CLASSES, LAYOUT, NO_WORK
from cans.models.points.fusion import Fusions

_MOST_TENSORS = 9  # more than this many, small ones included, is no cut worth suggesting
_FREE = 1024  # bytes; a tensor of less than this costs nothing to send,
_FREE_SHARE = 16  # nor does one of less than this part of the largest that crosses


_ALL_OF_IT = 0.99  # of the work; a cut beside it divides nothing


@dataclass(frozen=True)
class Point:
    """One cut. The front-end is the first `depth` nodes; `outputs` are produced there."""

    index: int
    name: str
    depth: int
    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    front: Half
    back: Half

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in self.tensors)


def find_points(
    model: Model, max_tensors: int = 1, max_points: int | None = None
) -> tuple[Point, ...]:
    """Every valid cut from the raw input (point 0) to purely local (the last), in order.

    At most `max_tensors` cross at a cut; small ones, beside a large one or all, do not count.

    A file that declares its own points (as the built-in models do) has exactly those, unless
    another number of crossing tensors is asked for, or a tool that quantised or rewrote the file
    kept the declaration and not the cuts.
    """
    if max_tensors < 1:
        raise InputError("--max-tensors must be at least 1")
    if max_points is not None and max_points < 3:
        raise InputError("--max-points must be at least 3: the input, one cut, and the end")
    cuts = _declared(model) if max_tensors == 1 else None
    if cuts is None:
        cuts = _searched(model, max_tensors)
    if len(cuts) < 3:
        raise ModelError(_no_cut(model, max_tensors))
    points = _describe(model, cuts)
    return points if max_points is None else _renumber(_spread(points, max_points))


def _declared(model: Model) -> list[tuple[str, int]] | None:
    if model.declared_points is None:
        return None
    fusions = Fusions(model.graph, model.tensors)
    last_depth = {alive: depth for depth, alive in enumerate(model.graph.crossings())}
    names = list(model.declared_points.items())
    cuts = [(names[0][0], 0)]
    for name, tensor in names[1:-1]:
        depth = last_depth.get((tensor,))
        if (
            depth is None
            or tensor not in model.tensors
            or fusions.broken_by(depth, (tensor,), (tensor,))
        ):
            return None
        cuts.append((name, depth))
    cuts.append((names[-1][0], len(model.graph.nodes)))
    rising = all(a < b for (_, a), (_, b) in pairwise(cuts))
    return cuts if rising else None


def _searched(model: Model, max_tensors: int) -> list[tuple[str, int]]:
    fusions = Fusions(model.graph, model.tensors)
    alive_after = model.graph.crossings()
    count = len(model.graph.nodes)
    raw = set(alive_after[0])
    found: list[tuple[tuple[str, ...], int]] = []
    for depth in range(1, count):
        alive = alive_after[depth]
        if not 1 <= len(alive) <= max(_MOST_TENSORS, max_tensors):
            continue
        # A cut that sends the untouched input is the raw input again.
        if raw.issubset(alive) or any(name not in model.tensors for name in alive):
            continue
        large = _large(model, alive)
        if len(large) > max_tensors or fusions.broken_by(depth, alive, large):
            continue
        if found and _large(model, found[-1][0]) == large:
            if _bytes(model, alive) <= _bytes(model, found[-1][0]):
                found[-1] = (alive, depth)  # the same crossing with a side branch done
        elif not found or not _only_moves_data(model, found[-1], (alive, depth)):
            found.append((alive, depth))
    cuts = [("+".join(_large(model, alive)), depth) for alive, depth in found]
    return [("input", 0), *_unlike(cuts), ("end", count)]


def _large(model: Model, alive: Sequence[str]) -> tuple[str, ...]:
    """The tensors of a cut that count; the largest one when all are small."""
    largest = max(alive, key=lambda name: model.tensors[name].nbytes)
    free = max(_FREE, model.tensors[largest].nbytes // _FREE_SHARE)
    return tuple(n for n in alive if model.tensors[n].nbytes >= free) or (largest,)


def _bytes(model: Model, alive: Sequence[str]) -> int:
    return sum(model.tensors[name].nbytes for name in alive)


def _unlike(cuts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Every name once: a later cut with the same large tensors says where it is."""
    seen: set[str] = set()
    found = []
    for name, depth in cuts:
        found.append((f"{name}@{depth}" if name in seen else name, depth))
        seen.add(name)
    return found


def _only_moves_data(
    model: Model, before: tuple[tuple[str, ...], int], after: tuple[tuple[str, ...], int]
) -> bool:
    """Nothing but reshaping lies between two cuts of equal size: one of them is enough."""
    nodes = model.graph.nodes[before[1] : after[1]]
    sizes = [sum(model.tensors[name].nbytes for name in each[0]) for each in (before, after)]
    return all(node.kind in LAYOUT for node in nodes) and sizes[0] == sizes[1]


def _describe(model: Model, cuts: Sequence[tuple[str, int]]) -> tuple[Point, ...]:
    alive_after = model.graph.crossings()
    fronts = halves(model, [depth for _, depth in cuts])
    backs = halves(model, [depth for _, depth in cuts], backward=True)
    made_at = {
        name: depth
        for depth, node in enumerate(model.graph.nodes, start=1)
        for name in node.outputs
    }
    points = []
    for index, (name, depth) in enumerate(cuts):
        produced = tuple(n for n in model.outputs if made_at.get(n, 0) <= depth)
        tensors = tuple(model.tensors[each] for each in alive_after[depth])
        points.append(Point(index, name, depth, tensors, produced, fronts[depth], backs[depth]))
    return tuple(points)


def halves(model: Model, depths: Iterable[int], backward: bool = False) -> dict[int, Half]:
    """Cumulative work before (or after) each depth; a weight counts once per half."""
    count = len(model.graph.nodes)
    order = range(count - 1, -1, -1) if backward else range(count)
    wanted = set(depths)
    work, weights, weight_bytes, moved = NO_WORK, set[str](), 0, 0
    halves: dict[int, Half] = {}

    def keep(depth: int) -> None:
        if depth in wanted:
            halves[depth] = Half(
                dict(zip(CLASSES, work.amount, strict=True)),
                dict(zip(CLASSES, work.ops, strict=True)),
                weight_bytes,
                moved,
            )

    keep(count if backward else 0)
    for i in order:
        node = model.graph.nodes[i]
        work = work + model.node_work[i]
        new = set(node.constants) - weights
        weight_bytes += sum(model.weight_bytes(name) for name in new)
        weights |= new
        activations = (*node.inputs, *node.outputs)
        moved += sum(model.tensors[n].nbytes for n in activations if n in model.tensors)
        moved += sum(model.weight_bytes(name) for name in node.constants)
        keep(i if backward else i + 1)
    return halves


def _renumber(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(replace(point, index=index) for index, point in enumerate(points))


def widest_gap(points: Sequence[Point]) -> float:
    """The largest share of the work that lies between two neighbouring points."""
    total = max(points[-1].front.total_macs, 1)
    return max(b.front.total_macs - a.front.total_macs for a, b in pairwise(points)) / total


def hint(model: Model, points: Sequence[Point], max_tensors: int) -> str:
    """What to try when half of the work has no cut; empty when all is well."""
    gap = widest_gap(points)
    if gap < 0.5 or not points[-1].front.total_macs:
        return ""
    for more in range(max_tensors + 1, _MOST_TENSORS):
        cuts = _searched(model, more)
        better = widest_gap(_describe(model, cuts)) if len(cuts) > 2 else 1.0
        if better < 0.5:
            return (
                f"{100 * gap:.0f} % of the work lies between two cuts; with --max-tensors {more} "
                f"there are {len(cuts)} points, and {100 * better:.0f} %"
            )
    return f"{100 * gap:.0f} % of the work lies between two cuts, whatever crosses"


def _no_cut(model: Model, max_tensors: int) -> str:
    more = (k for k in range(max_tensors + 1, _MOST_TENSORS) if _divides(model, k))
    enough = next(more, None)
    hint = "run it whole, on the device or on the server"
    if enough is not None:
        hint = f"try --max-tensors {enough}, or {hint}"
    inside = {node.kind for node in model.graph.nodes} & {"If", "Loop", "Scan"}
    reason = f" (its work is inside {', '.join(sorted(inside))})" if inside else ""
    return f"{model.name} has no cut that {max_tensors} tensor(s) can cross{reason}: {hint}"


def _divides(model: Model, max_tensors: int) -> bool:
    """Whether with so many tensors there is a cut with work on both sides."""
    cuts = _searched(model, max_tensors)
    return len(cuts) > 2 and widest_gap(_describe(model, cuts)) < _ALL_OF_IT


def _spread(points: Sequence[Point], keep: int) -> list[Point]:
    """The two ends and the smallest crossing in each of `keep - 2` equal shares of the work."""
    inner = list(points[1:-1])
    wanted = keep - 2
    if len(inner) <= wanted:
        return list(points)
    total = max(points[-1].front.total_macs, 1)
    shares: dict[int, list[Point]] = {}
    for point in inner:
        share = min(wanted - 1, point.front.total_macs * wanted // total)
        shares.setdefault(share, []).append(point)
    chosen = [min(each, key=_size) for each in shares.values()]
    # Work is uneven: shares without a cut leave places for the smallest crossings elsewhere.
    rest = sorted((point for point in inner if point not in chosen), key=_size)
    chosen += rest[: wanted - len(chosen)]
    return [points[0], *sorted(chosen, key=lambda point: point.index), points[-1]]


def _size(point: Point) -> tuple[int, int]:
    return point.bytes, point.index
