"""From a file, or the name of a built-in network, to a model that is ready to be cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

import onnx

from cans.errors import CansError, ModelError
from cans.models import builtin
from cans.models.builtin.builder import POINTS_KEY
from cans.models.builtin.weight_file import BuiltInWeights
from cans.models.onnx.cleaning import clean
from cans.models.onnx.file import open_file
from cans.models.onnx.folding import fold
from cans.models.onnx.graph import build_graph
from cans.models.onnx.input_shapes import fix_shapes
from cans.models.onnx.int8 import unsign_pairs
from cans.models.onnx.model import Model
from cans.models.onnx.operators import check_operators
from cans.models.onnx.tensors import CROSSING_TYPES
from cans.models.onnx.tracing import trace, unknown
from cans.models.onnx.weights import Weights
from cans.models.run.sessions import first_line


def load(source: str | PathLike[str], shapes: Mapping[str, tuple[int, ...]] | None = None) -> Model:
    """Read a model: constants folded, shapes known, weights left in their files.

    `source` is an ONNX file or the name of a built-in network; `shapes` fixes open input
    dimensions. A file wins over a built-in network of the same name.
    """
    name = fspath(source)
    path = Path(name)
    try:
        if name in builtin.NAMES and not path.is_file():
            built = builtin.build(name)
            return _prepare(name, built.proto, BuiltInWeights(built), built.digest, shapes or {})
        if not path.exists():
            known = ", ".join(builtin.NAMES)
            raise ModelError(f"there is no file {name}; the built-in models are: {known}")
        opened = open_file(path)
        weights = Weights(opened.regions)
        model = _prepare(path.stem, opened.proto, weights, opened.digest, shapes or {})
        return replace(model, source=path, beside=opened.beside)
    except CansError:
        raise
    except Exception as error:  # onnx and its checkers raise many kinds on a malformed graph
        raise ModelError(f"{name} is not a valid ONNX model: {first_line(error)}") from error


def _prepare(
    name: str,
    proto: onnx.ModelProto,
    weights: Weights,
    digest: str,
    shapes: Mapping[str, tuple[int, ...]],
) -> Model:
    proto = clean(proto)
    check_operators(proto)
    fix_shapes(proto.graph, shapes)
    _check_types(proto.graph)
    unsign_pairs(proto.graph)
    tensors = fold(proto)
    graph = build_graph(proto.graph)
    declared = {each.key: each.value for each in proto.metadata_props}.get(POINTS_KEY)
    points = _declared_points(declared) if declared else None
    if not graph.nodes:
        raise ModelError(f"{name} computes nothing from its inputs; there is nothing to cut")
    model = Model(name, digest, proto, graph, tensors, weights, points)
    if unknown(graph, tensors):
        model = replace(model, tensors={**tensors, **trace(model)})
    return model


def _declared_points(text: str) -> Mapping[str, str] | None:
    """Point name -> tensor, in order, the raw input first and the end last; else ignored."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    valid = isinstance(found, dict) and len(found) >= 3
    return found if valid and all(isinstance(each, str) for each in found.values()) else None


def _check_types(graph: onnx.GraphProto) -> None:
    if not graph.input:
        raise ModelError("the model has no input; there is nothing to send")
    for info in graph.input:
        if info.type.tensor_type.elem_type not in CROSSING_TYPES:
            kind = onnx.TensorProto.DataType.Name(info.type.tensor_type.elem_type)
            raise ModelError(f"input {info.name!r} is of type {kind}, which cannot be sent")
