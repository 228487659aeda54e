"""The partition tables of the paper's three backbones, shipped as data.

Each file is a `cans inspect --json` document with a `provenance` line; `tests/models` counts them
again from the built-in graphs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from cans.errors import unknown_name
from cans.learning.table import PartitionTable
from cans.models.features import feature_columns
from cans.models.half import Half

PROBE_BYTES = 8192  # what a timed exchange of the link sends
MODELS = ("vgg16", "resnet50", "vit_b16")


@cache
def load_document(model: str) -> dict[str, Any]:
    """The shipped description of a backbone's partition points."""
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    text = files("cans.simulation").joinpath("tables", f"{model}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@dataclass(frozen=True)
class _Cut:
    """A point of a document, as the features want it."""

    front: Half
    back: Half
    bytes: int

    @classmethod
    def of(cls, point: dict[str, Any]) -> _Cut:
        return cls(Half(**point["front"]), Half(**point["back"]), point["bytes"])


@cache
def load_table(model: str, feature_set: str) -> tuple[dict[str, Any], PartitionTable]:
    """A backbone's description and its features for the learner."""
    document = load_document(model)
    cuts = [_Cut.of(point) for point in document["points"]]
    columns = feature_columns(cuts, feature_set)
    probe = [PROBE_BYTES / max(cut.bytes for cut in cuts), 1.0]
    return document, PartitionTable(
        model,
        [point["name"] for point in document["points"]],
        front=columns["front"][1],
        link=columns["link"][1],
        server=columns["server"][1],
        names={segment: names for segment, (names, _) in columns.items()},
        probe=np.array(probe[: columns["link"][1].shape[1]]),
        digest=document["digest"],
        version=feature_set,
    )
