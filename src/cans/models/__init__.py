"""ONNX in; partition points, features, runnable halves and codecs out.

model = load("resnet50.onnx")                     # or a built-in name
points = find_points(model)                       # point 0: raw input; the last: local
executor = Executor(model, points)
front = executor.run_front(3, {"input": image})   # on the device
back = executor.run_back(3, front.crossing)       # on the server
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cans.models.codecs import CODECS as CODECS
    from cans.models.codecs import Codec as Codec
    from cans.models.codecs import PayloadError as PayloadError
    from cans.models.codecs import codec_at as codec_at
    from cans.models.codecs import decode as decode
    from cans.models.codecs import get_codec as get_codec
    from cans.models.executor import BackResult as BackResult
    from cans.models.executor import Executor as Executor
    from cans.models.executor import FrontResult as FrontResult
    from cans.models.features import FEATURE_SETS as FEATURE_SETS
    from cans.models.features import feature_columns as feature_columns
    from cans.models.images import ImageSpec as ImageSpec
    from cans.models.loading import load as load
    from cans.models.model import Model as Model
    from cans.models.points import Point as Point
    from cans.models.points import find_points as find_points
    from cans.models.table import PartitionTable as PartitionTable
    from cans.models.tensors import Tensor as Tensor

# Imported on first use: the simulator and `cans --help` need no ONNX.
_PUBLIC = {
    "CODECS": "codecs",
    "Codec": "codecs",
    "PayloadError": "codecs",
    "codec_at": "codecs",
    "decode": "codecs",
    "get_codec": "codecs",
    "BackResult": "executor",
    "Executor": "executor",
    "FrontResult": "executor",
    "FEATURE_SETS": "features",
    "feature_columns": "features",
    "ImageSpec": "images",
    "load": "loading",
    "Model": "model",
    "Point": "points",
    "find_points": "points",
    "PartitionTable": "table",
    "Tensor": "tensors",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cans.models' has no attribute {name!r}")
    return getattr(import_module(f"cans.models.{_PUBLIC[name]}"), name)
