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
    columns = {"mac3": _mac3, "rich": _rich}[feature_set](points)
    names = [point["name"] for point in points]
    return document, PartitionTable(
        model, names, **columns, digest=document["digest"], version=feature_set
    )


def _macs(half: dict[str, Any]) -> float:
    macs = half["macs"]
    return float(macs["conv"] + macs["linear"] + macs["attention"])


def _mac3(points: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "probe": np.array([8192.0]),
        "front": np.array([[_macs(point["front"])] for point in points]),
        "link": np.array([[point["bytes"]] for point in points]),
        "server": np.array([[_macs(point["back"])] for point in points]),
    }


def _rich(points: list[dict[str, Any]]) -> dict[str, Any]:
    def half(side: dict[str, Any]) -> list[float]:
        classes = ("conv", "linear", "attention", "activation")
        macs = [side["macs"][each] for each in classes]
        return [*macs, side["weight_bytes"], sum(side["ops"].values())]

    return {
        "probe": np.array([8192.0, 1.0]),
        "front": np.array([half(point["front"]) for point in points]),
        "link": np.array([[point["bytes"], float(point["bytes"] > 0)] for point in points]),
        "server": np.array([half(point["back"]) for point in points]),
    }
