"""Shapes that inference cannot find, taken from the model itself while it runs."""

from __future__ import annotations

import numpy as np

from cans.errors import CansError
from cans.models.onnx.graph import Graph
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import CROSSING_TYPES, Tensor
from cans.models.run.inputs import random_inputs
from cans.models.run.sessions import RuntimeOptions, open_session
from cans.models.run.slicing import assemble

_NAMES = frozenset(CROSSING_TYPES.values())


def unknown(graph: Graph, tensors: dict[str, Tensor]) -> list[str]:
    return [name for node in graph.nodes for name in node.outputs if name not in tensors]


def trace(model: Model) -> dict[str, Tensor]:
    """Run twice on different inputs; a shape that stays the same is taken as fixed.

    A model that does not run on made-up inputs keeps its unknown shapes: no cut goes through
    them, and the others are as good as ever.
    """
    names = unknown(model.graph, dict(model.tensors))
    piece = assemble(model, model.graph.nodes, model.graph.inputs, names)
    generator = np.random.default_rng(0)
    try:
        session = open_session(piece, model.weights, RuntimeOptions())
        first, second = (session.run(random_inputs(model.inputs, generator)) for _ in range(2))
    except CansError:
        return {}
    return {
        name: Tensor(name, value.shape, value.dtype.name)
        for name, value in first.items()
        if isinstance(value, np.ndarray)
        and value.dtype.name in _NAMES
        and value.shape == second[name].shape
    }
