"""The points of a model at the size of one request, and the rows of its table then."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cans.models.codecs.image import ImageSpec
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.cost import Half
from cans.models.points.counting import CLASSES
from cans.models.points.points import Point, halves
from cans.models.points.sizes import terms_of
from cans.models.points.table import PartitionTable

_REMEMBERED = 256  # sizes whose rows are kept


class SizedPoints:
    """The same cuts at any size: what crosses and what work lies on each side."""

    def __init__(self, model: Model, points: Sequence[Point]) -> None:
        assert model.varying is not None
        self.points = tuple(points)
        self._varying = model.varying
        symbolic = replace(model, tensors=_symbolic(model))
        depths = [point.depth for point in points]
        fronts, backs = halves(symbolic, depths), halves(symbolic, depths, backward=True)
        both = [half for depth in depths for half in (fronts[depth], backs[depth])]
        counts: list[Any] = [x for half in both for x in (*half.macs.values(), half.bytes_moved)]
        self._terms = list(dict.fromkeys(key for each in counts for key in terms_of(each)))
        self._matrix = np.array(
            [[terms_of(each).get(t, 0) for t in self._terms] for each in counts]
        )

    def at(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Point, ...]:
        """The points for inputs of these shapes."""
        sizes = self._varying.symbols.sizes_of(shapes)
        atoms = {atom: atom.at(sizes) for key in self._terms for atom in key}
        values = np.array([prod(atoms[atom] for atom in key) for key in self._terms])
        counts = np.rint(self._matrix @ values).astype(np.int64)
        rows = counts.reshape(len(self.points), 2, len(CLASSES) + 1).tolist()
        return tuple(
            replace(
                point,
                tensors=tuple(self._sized(each, sizes) for each in point.tensors),
                front=_half(point.front, front),
                back=_half(point.back, back),
            )
            for point, (front, back) in zip(self.points, rows, strict=True)
        )

    def _sized(self, tensor: Tensor, sizes: Sequence[int]) -> Tensor:
        if not tensor.lowest:
            return tensor
        return Tensor(tensor.name, self._varying.shape_of(tensor.name, sizes), tensor.dtype)


class SizedTable:
    """The learner's rows for inputs of any size, all on the scale of the largest: what is learned
    at one size holds at every other. Thread-safe."""

    def __init__(
        self,
        model: Model,
        points: Sequence[Point],
        features: str = "rich",
        codecs: Sequence[str] = ("float32",),
        image: ImageSpec | None = None,
        probe_bytes: Sequence[int] = (),
    ) -> None:
        self._model = model
        self._how = features, codecs, image
        self._points = SizedPoints(model, points)
        self.largest = PartitionTable.of(model, points, features, codecs, image, probe_bytes)
        self._known: OrderedDict[tuple[tuple[int, ...], ...], PartitionTable] = OrderedDict()
        self._names = [each.name for each in model.inputs]
        self._lock = Lock()

    def at(self, inputs: Mapping[str, NDArray[Any]]) -> PartitionTable:
        """The rows for these inputs."""
        key = tuple([inputs[name].shape for name in self._names])
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
        points = self._points.at(dict(zip(self._names, key, strict=True)))
        made = PartitionTable.of(self._model, points, *self._how, like=self.largest)
        with self._lock:
            self._known[key] = made
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return made


def _symbolic(model: Model) -> dict[str, Tensor]:
    """The tensors with functions of the open dimensions in the place of numbers."""
    assert model.varying is not None
    shapes = model.varying.shapes
    return {
        name: Tensor(name, cast("tuple[int, ...]", shapes.get(name, tensor.shape)), tensor.dtype)
        for name, tensor in model.tensors.items()
    }


def _half(half: Half, counts: Sequence[int]) -> Half:
    macs = dict(zip(CLASSES, counts[:-1], strict=True))
    return Half(macs, half.ops, half.weight_bytes, counts[-1])
