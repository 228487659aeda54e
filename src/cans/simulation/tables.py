"""The partition tables of the paper's three backbones, shipped as data.

Each file is a `cans inspect --json` document with a `provenance` line; `tests/models` counts them
again from the built-in graphs.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from cans.errors import unknown_name
from cans.learning.table import PartitionTable

MODELS = ("vgg16", "resnet50", "vit_b16")


@cache
def load_document(model: str) -> dict[str, Any]:
    """The shipped description of a backbone's partition points."""
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    text = files("cans.simulation").joinpath("tables", f"{model}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def load_table(model: str, feature_set: str) -> tuple[dict[str, Any], PartitionTable]:
    """A backbone's description and its features for the learner."""
    document = load_document(model)
    points = document["points"]
    mac=lambda h: h["macs"]["conv"]+h["macs"]["linear"]+h["macs"]["attention"]
    return document, PartitionTable(
        model, [p["name"] for p in points],
        front=np.array([[mac(p["front"])] for p in points]),
        link=np.array([[p["bytes"]] for p in points]),
        server=np.array([[mac(p["back"])] for p in points]), digest=document["digest"])
