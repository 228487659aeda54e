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
    from cans.models.codecs.codec import Codec as Codec
    from cans.models.codecs.codec import PayloadError as PayloadError
    from cans.models.codecs.codec import all_codecs as all_codecs
    from cans.models.codecs.codec import codec_at as codec_at
    from cans.models.codecs.codec import get_codec as get_codec
    from cans.models.codecs.image import ImageSpec as ImageSpec
    from cans.models.onnx.loading import load as load
    from cans.models.onnx.model import Model as Model
    from cans.models.onnx.tensors import Tensor as Tensor
    from cans.models.points.features import FEATURE_SETS as FEATURE_SETS
    from cans.models.points.features import feature_columns as feature_columns
    from cans.models.points.features import feature_set_of as feature_set_of
    from cans.models.points.points import Point as Point
    from cans.models.points.points import find_points as find_points
    from cans.models.points.sized import SizedTable as SizedTable
    from cans.models.points.table import PartitionTable as PartitionTable
    from cans.models.run.executor import BackResult as BackResult
    from cans.models.run.executor import Executor as Executor
    from cans.models.run.executor import FrontResult as FrontResult
    from cans.models.run.half_cache import chain_bytes as chain_bytes
    from cans.models.run.half_cache import halves_within as halves_within
    from cans.models.run.runtime import RuntimeOptions as RuntimeOptions

# Imported on first use: the simulator and `cans --help` need no ONNX.
_PUBLIC = {
    "Codec": "codecs.codec",
    "PayloadError": "codecs.codec",
    "all_codecs": "codecs.codec",
    "codec_at": "codecs.codec",
    "get_codec": "codecs.codec",
    "BackResult": "run.executor",
    "Executor": "run.executor",
    "chain_bytes": "run.half_cache",
    "halves_within": "run.half_cache",
    "FrontResult": "run.executor",
    "RuntimeOptions": "run.runtime",
    "FEATURE_SETS": "points.features",
    "feature_columns": "points.features",
    "feature_set_of": "points.features",
    "ImageSpec": "codecs.image",
    "load": "onnx.loading",
    "Model": "onnx.model",
    "Point": "points.points",
    "find_points": "points.points",
    "PartitionTable": "points.table",
    "SizedTable": "points.sized",
    "Tensor": "onnx.tensors",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cans.models' has no attribute {name!r}")
    return getattr(import_module(f"cans.models.{_PUBLIC[name]}"), name)
