"""The simulator's tables of the backbones.

`python -m cans.models.tools.backbone_tables` writes them. The simulator reads them as data, so that
a researcher needs no ONNX to simulate.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from cans.models.onnx.loading import load
from cans.models.points.points import find_points
from cans.models.tools.describe import describe

BACKBONES = ("vgg16", "resnet50", "vit_b16")


def folder() -> Path:
    return Path(str(files("cans.simulation.worlds"))) / "data"


def table(name: str) -> dict[str, Any]:
    """What the file of one backbone must say."""
    model = load(name)
    return {
        "provenance": f"cans inspect {name} --json",
        **describe(model, find_points(model)),
    }


def main() -> None:
    folder().mkdir(exist_ok=True)
    for name in BACKBONES:
        text = json.dumps(table(name), indent=1) + "\n"
        (folder() / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
