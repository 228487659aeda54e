"""The learner's table, made from a model: `PartitionTable.from_onnx`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from cans import learning
from cans.errors import InputError
from cans.models.codecs.codec import codec_at
from cans.models.codecs.image import ImageSpec
from cans.models.onnx.loading import load
from cans.models.onnx.model import Model
from cans.models.points.features import largest, raw_columns
from cans.models.points.points import Point, find_points


@dataclass(frozen=True, eq=False)
class PartitionTable(learning.PartitionTable):
    """A table that can be made from an ONNX file; the learner's own part knows no ONNX."""

    scales: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # one of each column

    @classmethod
    def from_onnx(
        cls,
        source: str | PathLike[str],
        *,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        features: str = "rich",
        codecs: Sequence[str] = ("float32",),
        image: ImageSpec | None = None,
        max_tensors: int = 1,
        max_points: int | None = None,
    ) -> PartitionTable:
        """One choice per point and codec that applies there, the local point last and once."""
        model = load(source, shapes)
        points = find_points(model, max_tensors, max_points)
        return cls.of(model, points, features, codecs, image)

    @classmethod
    def of(
        cls,
        model: Model,
        points: Sequence[Point],
        features: str = "rich",
        codecs: Sequence[str] = ("float32",),
        image: ImageSpec | None = None,
        probe_bytes: Sequence[int] = (),
        like: PartitionTable | None = None,
        left_out: Collection[int] = (),
    ) -> PartitionTable:
        """`probe_bytes`: sizes of messages that devices may send to time a link. `like`: the table
        of the same points at the largest size of input; the rows are on its scale. `left_out`:
        points that are no choice."""
        if not codecs:
            raise InputError("codecs must name at least one codec, e.g. float32")
        chosen: list[Point] = []
        names: list[str] = []
        sizes: list[int] = []
        for point in (each for each in points[:-1] if each.index not in left_out):
            for name in codecs:
                codec = codec_at(name, point.index, image)
                if codec is not None:
                    chosen.append(point)
                    names.append(name)
                    sizes.append(sum(codec.size(t.shape, t.dtype) for t in point.tensors))
        chosen.append(points[-1])
        encoded = {
            name: [
                _elements(point) if used == name else 0
                for point, used in zip(chosen, [*names, ""], strict=True)
            ]
            for name in codecs
            if name != "float32"
        }
        raw = raw_columns(chosen, features, [*sizes, 0], encoded)
        if like is not None:
            rows = {each: raw[each][1] / like.scales[each] for each in raw}
            return replace(
                like, front=rows["front"], link=rows["link"], server=rows["server"],
                bytes_of=[*sizes, 0], scaled=True,
            )  # fmt: skip
        return cls(
            model.name,
            [point.name for point in points],
            front=raw["front"][1],
            link=raw["link"][1],
            server=raw["server"][1],
            point_of=[point.index for point in chosen],
            codec_of=[*names, codecs[0]],
            bytes_of=[*sizes, 0],
            names={segment: raw[segment][0] for segment in raw},
            probe=_probe(raw["link"][0], probe_bytes) if probe_bytes else None,
            digest=model.digest,
            scales={each: largest(raw[each][1]) for each in raw},
        )


def _elements(point: Point) -> int:
    """How many numbers cross at a point."""
    return sum(prod(tensor.shape) for tensor in point.tensors)


def _probe(names: Sequence[str], probe_bytes: Sequence[int]) -> NDArray[np.float64]:
    """The link's features of exchanges to time; the table scales them like its own."""
    return np.array(
        [[float(size) if each == "bytes" else 1.0 for each in names] for size in probe_bytes]
    )
