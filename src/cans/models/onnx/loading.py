"""From a file, or the name of a built-in network, to a model that is ready to be cut."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from cans.errors import CansError, InputError, ModelError
from cans.models import builtin
from cans.models.builtin.builder import POINTS_KEY
from cans.models.builtin.weight_file import BuiltInWeights
from cans.models.onnx.checking import check_model
from cans.models.onnx.cleaning import clean
from cans.models.onnx.file import open_file
from cans.models.onnx.folding import fold
from cans.models.onnx.graph import Graph, build_graph
from cans.models.onnx.int8 import unsign_pairs
from cans.models.onnx.model import Model
from cans.models.onnx.shapes import fix_shapes, shape_fits, spelled
from cans.models.onnx.suggesting import open_message
from cans.models.onnx.tensors import ONNX_TYPES, Tensor, from_value_info
from cans.models.onnx.trial import (
    Traced,
    cached,
    read_cached,
    try_model,
    try_sizes,
    write_cached,
)
from cans.models.onnx.weights import Weights
from cans.models.points.sizes import Symbols, Varying, varying_tensors, written_shapes
from cans.models.run.inputs import index_limits, random_inputs
from cans.models.run.sessions import one_line

_LARGEST_INPUTS = 1_000_000_000  # bytes


def load(
    source: str | PathLike[str],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    lowest: Mapping[str, tuple[int, ...]] | None = None,
) -> Model:
    """Read a model: constants folded, shapes known, weights left in their files.

    `source` is an ONNX file or the name of a built-in network; `shapes` fixes open input
    dimensions. A file wins over a built-in network of the same name. A file is believed when it
    has run, on `inputs` or else on made-up ones: `ModelError` says why it does not. With `lowest`,
    dimensions may vary from there up to `shapes`: the model is cut once and runs at any size.
    """
    name = fspath(source)
    path = Path(name)
    wanted = dict(shapes or {})
    try:
        if name in builtin.NAMES and not path.is_file():
            built = builtin.build(name)
            return _Loading(name, BuiltInWeights(built), built.digest, trusted=True).model(
                built.proto, wanted
            )
        if not path.exists():
            known = ", ".join(builtin.NAMES)
            raise ModelError(f"there is no file {name}; the built-in models are: {known}")
        opened = open_file(path)
        loading = _Loading(path.stem, Weights(opened.regions), opened.digest, inputs)
        if lowest and any(lowest[each] != wanted.get(each) for each in lowest):
            model = loading.varying_model(opened.proto, wanted, lowest)
        else:
            model = loading.model(opened.proto, wanted)
        return replace(model, source=path, beside=opened.beside)
    except CansError:
        raise
    except MemoryError as error:
        raise ModelError(f"{name} needs more memory than there is: {one_line(error)}") from None
    except Exception as error:  # onnx and its checkers raise many kinds on a malformed graph
        raise ModelError(f"{name} is not a valid ONNX model: {one_line(error)}") from error


def input_names(source: str | PathLike[str]) -> list[str]:
    """The inputs of a model, without doing more with it than reading it."""
    name = fspath(source)
    if name in builtin.NAMES and not Path(name).is_file():
        return [each.name for each in builtin.build(name).proto.graph.input]
    proto = open_file(Path(name)).proto
    fixed = {each.name for each in proto.graph.initializer}
    return [each.name for each in proto.graph.input if each.name not in fixed]


@dataclass(frozen=True)
class _Loading:
    """One model on its way from the bytes of a file to something that can be cut."""

    name: str
    weights: Weights
    digest: str
    inputs: Mapping[str, NDArray[Any]] | None = None  # to try it with
    trusted: bool = False  # made here: its shapes need no trial

    def model(self, proto: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> Model:
        proto = clean(proto)
        check_model(proto)
        shapes = {**self._given_shapes(proto.graph), **shapes}
        named = _named_sizes(proto.graph, shapes)
        still_open = fix_shapes(proto.graph, shapes)
        if still_open:

            def runs(suggested: dict[str, tuple[int, ...]], plainly: bool) -> str:
                return self._why_not(proto, {**shapes, **suggested}, plainly)

            raise ModelError(open_message(proto.graph, still_open, named, runs))
        unsign_pairs(proto.graph)
        traced = Traced() if self.trusted else self._tried(proto, shapes)
        tensors = fold(proto, traced)
        graph = build_graph(proto.graph, tensors)
        if not graph.nodes:
            raise ModelError(f"{self.name} computes nothing from its inputs; nothing to cut")
        if not self.trusted:
            tensors |= self._traced_after_folding(proto, graph, tensors, traced)
        declared = {each.key: each.value for each in proto.metadata_props}.get(POINTS_KEY)
        points = _declared_points(declared) if declared else None
        return Model(self.name, self.digest, proto, graph, tensors, self.weights, points, named)

    def varying_model(
        self,
        proto: onnx.ModelProto,
        highest: Mapping[str, tuple[int, ...]],
        lowest: Mapping[str, tuple[int, ...]],
    ) -> Model:
        """The model at its largest size, valid at all: nothing is folded that a size decides."""
        proto = clean(proto)
        check_model(proto)
        full = onnx.ModelProto()
        full.CopyFrom(proto)
        still_open = fix_shapes(full.graph, highest)
        if still_open:
            names = " ".join(f"--shape {each.name}=..." for each in still_open)
            raise ModelError(f"open dimensions beside those with a range; fix them with {names}")
        symbols = _symbols(proto.graph, highest, lowest)
        tensors = [each for info in full.graph.input if (each := from_value_info(info))]
        _check_size(tensors)
        _open_shapes(proto.graph, tensors, symbols)
        unsign_pairs(proto.graph)
        limits = index_limits(proto.graph)
        samples = symbols.samples()
        inputs = [
            random_inputs(
                [replace(t, shape=symbols.shape_at(t.name, t.shape, sizes)) for t in tensors],
                np.random.default_rng(i),
                limits,
            )
            for i, sizes in enumerate(samples)
        ]
        try:
            runs, dtypes = try_sizes(proto, self.weights, inputs)
        except ModelError as error:
            raise ModelError(f"{self.name} does not run at all of these sizes: {error}") from None
        for run, values in zip(runs, inputs, strict=True):
            run.update({name: array.shape for name, array in values.items()})
        dtypes |= {each.name: each.dtype for each in tensors}
        known = fold(proto, Traced())
        known |= varying_tensors(symbols, samples, runs, dtypes)
        graph = build_graph(proto.graph, known)
        varying = Varying(symbols, written_shapes(symbols, samples, runs, known))
        return Model(self.name, self.digest, proto, graph, known, self.weights, varying=varying)

    def _given_shapes(self, graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
        """Those of the arrays to try it with, which are of the model's inputs."""
        found = {name: array.shape for name, array in (self.inputs or {}).items()}
        for info in graph.input:
            if info.name in found and not shape_fits(info, found[info.name]):
                raise InputError(
                    f"input {info.name!r} must be {spelled(info)}, "
                    f"got the shape {list(found[info.name])}"
                )
        return found

    def _tried(self, proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> Traced:
        place = cached(self.digest, shapes)
        known = read_cached(place) if self.inputs is None else None
        if known is not None:
            return known
        try:
            traced = try_model(proto, self.weights, self._trial_inputs(proto))
        except ModelError as error:
            raise ModelError(
                f"{self.name} does not run at this shape ({_spelled_inputs(proto)}): {error}"
            ) from None
        write_cached(place, traced)
        return traced

    def _why_not(
        self, proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], plainly: bool
    ) -> str:
        """Why a model does not run at these shapes; nothing when it does. `plainly`: on ones or
        zeros is enough."""
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        fix_shapes(copy.graph, shapes)
        try:
            try_model(copy, self.weights, self._trial_inputs(copy, plainly))
        except ModelError as error:
            return str(error)[:200]
        return ""

    def _trial_inputs(
        self, proto: onnx.ModelProto, plainly: bool = True
    ) -> list[Mapping[str, NDArray[Any]]]:
        """Two different ones, and plainer ones for a model that does not accept those."""
        tensors = [each for info in proto.graph.input if (each := from_value_info(info))]
        _check_size(tensors)
        limits = index_limits(proto.graph)
        made = [random_inputs(tensors, np.random.default_rng(i), limits) for i in range(2)]
        plain = [
            {each.name: np.full(each.shape, value, each.dtype) for each in tensors}
            for value in (1, 0)
        ]
        given = [] if self.inputs is None else [self.inputs]
        return [*given, *made, *(plain if plainly else ())]

    def _traced_after_folding(
        self, proto: onnx.ModelProto, graph: Graph, tensors: dict[str, Tensor], traced: Traced
    ) -> dict[str, Tensor]:
        """Shapes of tensors that came into being by folding: those of a branch taken."""
        known = traced.shapes.keys() | traced.varying
        new = [name for node in graph.nodes for name in node.outputs if name not in known]
        if not new:
            return {}
        try:
            again = try_model(proto, self.weights, self._trial_inputs(proto))
        except ModelError:  # its original runs: no cut through these, and the others are as good
            return {}
        found = {}
        for name in new:
            dtype = again.dtypes.get(name)
            if name in again.shapes and dtype in ONNX_TYPES:
                found[name] = Tensor(name, again.shapes[name], str(dtype))
        return found


def _symbols(
    graph: onnx.GraphProto,
    highest: Mapping[str, tuple[int, ...]],
    lowest: Mapping[str, tuple[int, ...]],
) -> Symbols:
    """One symbol for every named dimension with a range, and for each that has no name."""
    names: list[str] = []
    bounds: list[tuple[int, int]] = []
    places: dict[str, tuple[int | None, ...]] = {}
    for info in graph.input:
        high = highest.get(info.name, ())
        low = lowest.get(info.name, high)
        found: list[int | None] = []
        for axis, (a, b) in enumerate(zip(low, high, strict=True)):
            if a == b:
                found.append(None)
                continue
            dims = info.type.tensor_type.shape.dim
            own = dims[axis].dim_param if axis < len(dims) else ""
            name = own or f"{info.name}.{axis}"
            if name not in names:
                names.append(name)
                bounds.append((a, b))
            if bounds[names.index(name)] != (a, b):
                raise ModelError(f"the dimension {name!r} has two ranges; give it one")
            found.append(names.index(name))
        places[info.name] = tuple(found)
    lows, highs = zip(*bounds, strict=True)
    return Symbols(tuple(names), lows, highs, places)


def _open_shapes(graph: onnx.GraphProto, tensors: Sequence[Tensor], symbols: Symbols) -> None:
    """Fix what is fixed, leave the rest open, and forget what was written for other sizes."""
    for info, tensor in zip(graph.input, tensors, strict=True):
        low = symbols.shape_at(tensor.name, tensor.shape, symbols.lowest)
        info.CopyFrom(replace(tensor, lowest=low).value_info())
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    del graph.value_info[:]


def _named_sizes(graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """What the names of open dimensions stand for now; names that stand for two things not."""
    found: dict[str, set[int]] = {}
    for info in graph.input:
        dims = info.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes.get(info.name, ()), strict=False):
            if dim.dim_param:
                found.setdefault(dim.dim_param, set()).add(size)
    return {name: min(sizes) for name, sizes in found.items() if len(sizes) == 1}


def _check_size(tensors: Sequence[Tensor]) -> None:
    """Before anything of this size is made up."""
    size = sum(each.nbytes for each in tensors)
    if size > _LARGEST_INPUTS:
        raise ModelError(
            f"the inputs would be {size / 1e9:.1f} GB at this shape, and {_LARGEST_INPUTS / 1e9:g} "
            "GB at most can be used; give a smaller --shape"
        )


def _spelled_inputs(proto: onnx.ModelProto) -> str:
    return "; ".join(f"{each.name}: {spelled(each)}" for each in proto.graph.input)


def _declared_points(text: str) -> Mapping[str, str] | None:
    """Point name -> tensor, in order, the raw input first and the end last; else ignored."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    valid = isinstance(found, dict) and len(found) >= 3
    return found if valid and all(isinstance(each, str) for each in found.values()) else None
