"""From a file, or the name of a built-in network, to a model that is ready to be cut."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cans.models import builtin, shapes
from cans.models.builtin.builder import POINTS_KEY
from cans.models.graph import build_graph
from cans.models.model import Model
from cans.models.weights import Weights


def load(source: str, shapes_given: Mapping[str, tuple[int, ...]] | None = None) -> Model:
    built = builtin.build(source)
    graph = build_graph(built.proto.graph)
    tensors = shapes.infer(built.proto)
    declared = {e.key: e.value for e in built.proto.metadata_props}.get(POINTS_KEY)
    return Model(
        built.name,
        built.digest,
        built.proto,
        graph,
        tensors,
        Weights({}),
        json.loads(declared) if declared else None,
    )
