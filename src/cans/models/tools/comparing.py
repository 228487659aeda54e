"""Outputs compared: how far apart they are, and whether they can show anything at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
_SATURATED = 1e-7  # from zero or one


def error(outputs: Arrays, reference: Arrays) -> float:
    """Largest difference over all outputs, relative to the larger of 1 and the output's size;
    infinite where shapes, or which numbers are finite, differ."""
    return max((_error(outputs[name], wanted) for name, wanted in reference.items()), default=0.0)


def _error(got: Any, wanted: Any) -> float:
    if isinstance(wanted, list | tuple | dict):  # a sequence of tensors; a map per row
        return _inner_error(got, wanted)
    if isinstance(wanted, float):
        got, wanted = np.asarray(got), np.asarray(wanted)
    if not isinstance(wanted, np.ndarray) or wanted.dtype == object:
        same = np.array_equal(np.asarray(got, object), np.asarray(wanted, object))
        return 0.0 if same else float("inf")
    if got.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return float("inf")
    # Equal infinities and not-a-numbers are no error; the rest is compared.
    scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale


def _inner_error(got: Any, wanted: Any) -> float:
    if type(got) is not type(wanted) or len(got) != len(wanted):
        return float("inf")
    if isinstance(wanted, dict):
        if got.keys() != wanted.keys():
            return float("inf")
        return max((_error(got[key], wanted[key]) for key in wanted), default=0.0)
    return max((_error(a, b) for a, b in zip(got, wanted, strict=True)), default=0.0)


def top1_agreement(outputs: Arrays, reference: Arrays) -> float | None:
    """Share of rows whose largest entry is in the same place; None when no output is a score."""
    for name, wanted in reference.items():
        is_score = isinstance(wanted, np.ndarray) and np.issubdtype(wanted.dtype, np.floating)
        if is_score and wanted.ndim >= 1 and wanted.shape[-1] > 1 and wanted.size:
            got = outputs[name]
            if got.shape != wanted.shape:
                return 0.0
            return float(np.mean(got.argmax(axis=-1) == wanted.argmax(axis=-1)))
    return None


def shows_nothing(runs: Sequence[Arrays]) -> dict[str, str]:
    """Outputs that would look equal whatever the model did, and why; `runs` are of different
    inputs."""
    found = {name: _why_nothing([run[name] for run in runs]) for name in runs[0]}
    return {name: why for name, why in found.items() if why}


def _why_nothing(values: Sequence[Any]) -> str:
    if not all(isinstance(each, np.ndarray) and each.dtype != object for each in values):
        same = len(values) > 1 and all(_error(each, values[0]) == 0.0 for each in values[1:])
        return "the same for every input" if same else ""
    if all(each.size == 0 for each in values):
        return "empty"
    real = [each for each in values if np.issubdtype(each.dtype, np.floating)]
    if real and all(np.isnan(each).all() for each in real):
        return "not a number"
    first = values[0]
    if len(values) > 1 and all(np.array_equal(each, first) for each in values[1:]):
        return "the same for every input"
    if all(each.size > 1 and (each == each.reshape(-1)[0]).all() for each in values):
        return "constant"
    if real and all(each.size > 1 and _only_zeros_and_ones(each) for each in real):
        return "saturated: only zeros and ones"
    return ""


def _only_zeros_and_ones(array: NDArray[Any]) -> bool:
    return bool((np.minimum(np.abs(array), np.abs(array - 1)) < _SATURATED).all())
