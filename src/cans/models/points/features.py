"""The learner's features: what explains the time on the device, on the link and on the server.

mac3    the paper's simulation: MACs | crossing bytes | MACs
ops13   the paper's prototype: MACs and counts of three operation classes | crossing bytes | the
        same; 6 + 7 columns. A transformer has attention in the place of convolution, and keeps
        its convolution MACs as one more column on each side: at the patch embedding the other
        columns are all zero.
rich    MACs by class, weight bytes, operation count | crossing bytes, intercept | the same;
        for every codec but float32 also the elements it writes on the device and reads on the
        server
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cans.errors import unknown_name
from cans.models.points.cost import Half

FEATURE_SETS = ("mac3", "ops13", "rich")
Columns = tuple[tuple[str, ...], NDArray[np.float64]]


class Cut(Protocol):
    """What a point must tell to be described."""

    @property
    def front(self) -> Half: ...
    @property
    def back(self) -> Half: ...
    @property
    def bytes(self) -> int: ...


def feature_columns(
    points: Sequence[Cut],
    feature_set: str,
    link_bytes: Sequence[int] | None = None,
    encoded: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Columns]:
    """`raw_columns`, every column divided by its maximum; columns of zeros stay zero."""
    raw = raw_columns(points, feature_set, link_bytes, encoded)
    return {segment: (names, divided(matrix)) for segment, (names, matrix) in raw.items()}


def raw_columns(
    points: Sequence[Cut],
    feature_set: str,
    link_bytes: Sequence[int] | None = None,
    encoded: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Columns]:
    """Names and a (points, columns) matrix for each of `front`, `link` and `server`.

    For choices of a point with a codec, `link_bytes` replaces the crossing bytes, and `encoded` has
    how many elements each codec writes at each choice.
    """
    if feature_set not in FEATURE_SETS:
        raise unknown_name("feature set", feature_set, FEATURE_SETS)
    sizes = [point.bytes for point in points] if link_bytes is None else list(link_bytes)
    wide = feature_set == "ops13" and points[-1].front.ops["attention"] > 0
    link_names: tuple[str, ...] = ("bytes",)
    link = [[float(size)] for size in sizes]
    if feature_set == "rich":
        link_names = ("bytes", "intercept")
        link = [
            [float(size), float(point is not points[-1])]
            for size, point in zip(sizes, points, strict=True)
        ]
    front = [_half(point.front, feature_set, wide) for point in points]
    server = [_half(point.back, feature_set, wide) for point in points]
    if feature_set == "rich":
        for codec, elements in (encoded or {}).items():
            for choice, count in enumerate(elements):
                front[choice][f"{codec} elements"] = count
                server[choice][f"{codec} elements"] = count
    return {
        "front": _matrix(front),
        "link": (link_names, np.array(link, np.float64)),
        "server": _matrix(server),
    }


def feature_set_of(names: Mapping[str, Sequence[str]]) -> str:
    """Which feature set a table has, by the names of its columns."""
    front = names.get("front", ())
    if "macs" in front:
        return "mac3"
    return "rich" if "weight bytes" in front else "ops13"


def _half(half: Half, feature_set: str, transformer: bool) -> dict[str, float]:
    if feature_set == "mac3":
        return {"macs": half.total_macs}
    if feature_set == "ops13":
        classes = ("attention" if transformer else "conv", "linear", "activation")
        columns = {f"{each} macs": float(half.macs[each]) for each in classes}
        columns |= {f"{each} ops": float(half.ops[each]) for each in classes}
        if transformer:
            columns["conv macs"] = half.macs["conv"]
        return columns
    columns = {f"{c} macs": float(half.macs[c]) for c in ("conv", "linear", "attention")}
    columns["activation elements"] = half.macs["activation"]
    columns["weight bytes"] = half.weight_bytes
    columns["ops"] = half.total_ops
    return columns


def _matrix(rows: list[dict[str, float]]) -> Columns:
    return tuple(rows[0]), np.array([list(row.values()) for row in rows], np.float64)


def largest(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest of each column; 1 for a column of zeros."""
    found = matrix.max(axis=0)
    scale: NDArray[np.float64] = np.where(found > 0, found, 1.0)
    return scale


def divided(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled: NDArray[np.float64] = matrix / largest(matrix)
    return scaled
