"""Which points to keep when only a few may stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cans.models.points.points import Point


def spread(points: Sequence[Point], keep: int) -> list[Point]:
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
