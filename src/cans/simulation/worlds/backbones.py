"""The partition tables of the paper's three backbones, shipped as data.

Each file is a `cans inspect --json` document with a `provenance` line; `tests/models` counts them
again from the built-in graphs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from cans.errors import InputError, unknown_name
from cans.learning.table import PROBE_BYTES, PartitionTable
from cans.models.points.cost import Half
from cans.models.points.features import feature_columns

BYTES_PER_ELEMENT = {"float32": 4, "float16": 2, "uint8": 1}
MODELS = ("vgg16", "resnet50", "vit_b16")


@cache
def load_document(model: str) -> dict[str, Any]:
    """The shipped description of a backbone's partition points."""
    if model not in MODELS:
        raise _not_here(model)
    text = files("cans.simulation.worlds").joinpath("data", f"{model}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _not_here(model: str) -> InputError:
    from cans.models.builtin import NAMES  # which needs onnx

    if model in NAMES or model.endswith(".onnx"):
        return InputError(
            f"model {model!r} is in no named world, where there are {', '.join(MODELS)}; it can be "
            f"in one of your own: model = {json.dumps(model)} in WORLD.toml, --world WORLD.toml"
        )
    return unknown_name("model", model, MODELS)


@dataclass(frozen=True)
class _Cut:
    """A point of a document, as the features want it."""

    front: Half
    back: Half
    bytes: int

    @classmethod
    def of(cls, point: dict[str, Any]) -> _Cut:
        return cls(Half(**point["front"]), Half(**point["back"]), point["bytes"])


@dataclass(frozen=True)
class CodedPoint:
    """A point with a codec."""

    point: int
    codec: str
    elements: int  # that cross

    @property
    def bytes(self) -> int:
        return BYTES_PER_ELEMENT[self.codec] * self.elements


def choices_of(document: dict[str, Any], codecs: Sequence[str]) -> list[CodedPoint]:
    """Every point with every codec, the local point last and once."""
    points = document["points"]
    remote = [
        CodedPoint(index, codec, point["bytes"] // BYTES_PER_ELEMENT["float32"])
        for index, point in enumerate(points[:-1])
        for codec in codecs
    ]
    return [*remote, CodedPoint(len(points) - 1, codecs[0], 0)]


@cache
def load_table(
    model: str, feature_set: str, codecs: tuple[str, ...] = ("float32",)
) -> tuple[dict[str, Any], PartitionTable]:
    """A backbone's description and its features for the learner."""
    document = load_document(model)
    cuts = [_Cut.of(point) for point in document["points"]]
    choices = choices_of(document, codecs)
    sizes = [choice.bytes for choice in choices]
    encoded = {
        codec: [choice.elements if choice.codec == codec else 0 for choice in choices]
        for codec in codecs
        if codec != "float32"
    }
    columns = feature_columns(
        [cuts[choice.point] for choice in choices], feature_set, sizes, encoded
    )
    probe = np.array([[sent / max(sizes), 1.0] for sent in PROBE_BYTES])
    return document, PartitionTable(
        model,
        [point["name"] for point in document["points"]],
        front=columns["front"][1],
        link=columns["link"][1],
        server=columns["server"][1],
        point_of=[choice.point for choice in choices],
        codec_of=[choice.codec for choice in choices],
        bytes_of=sizes,
        names={segment: names for segment, (names, _) in columns.items()},
        probe=probe[:, : columns["link"][1].shape[1]],
        digest=document["digest"],
        version=feature_set,
    )
