"""Early exits: outputs in the middle of a model that may be sure enough to stop there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

import numpy as np

from cans.errors import InputError
from cans.live.split import Array, SplitModel


class Exits:
    """The exits of a model that this device may take."""

    def __init__(self, model: SplitModel, wanted: Sequence[tuple[str, float]]) -> None:
        self._thresholds = dict(wanted)
        if len(self._thresholds) < len(wanted):
            raise InputError("--exit: an output is named twice")
        for name in self._thresholds:
            if name not in model.outputs:
                raise InputError(f"--exit {name}: the model's outputs are {list(model.outputs)}")
        made_at = {name: i for i, point in reversed(list(enumerate(model.points)))
                   for name in point.outputs if name in self._thresholds}  # fmt: skip
        self.points = tuple(sorted({i for i in made_at.values() if i < model.last}))
        """Where a run stops to look: the first points that have each exit's output."""

    def after(self, point: int) -> int | None:
        """Where to look next."""
        return next((each for each in self.points if each > point), None)

    def sure(self, outputs: Mapping[str, Array]) -> str:
        """The exit that is sure enough: its most likely class is likely enough. Empty: none."""
        for name, threshold in self._thresholds.items():
            if name in outputs and confidence(outputs[name]) >= threshold:
                return name
        return ""


def confidence(scores: Array) -> float:
    """The largest probability of a row of scores; of several rows, the least sure one.

    >>> confidence(np.array([[0.1, 0.9]])), round(confidence(np.array([0.0, 3.0])), 3)
    (0.9, 0.953)
    """
    rows = np.asarray(scores, dtype=np.float64).reshape(-1, np.shape(scores)[-1])
    is_probability = (rows >= 0).all() and np.allclose(rows.sum(axis=1), 1.0, atol=1e-3)
    if not is_probability:
        rows = np.exp(rows - rows.max(axis=1, keepdims=True))
        rows /= rows.sum(axis=1, keepdims=True)
    return float(rows.max(axis=1).min())


def parse_exit(text: str) -> tuple[str, float]:
    """`NAME:THRESHOLD`."""
    name, colon, threshold = text.rpartition(":")
    try:
        value = float(threshold)
    except ValueError:
        value = nan
    if not colon or not name or not 0 < value <= 1:
        raise InputError(f"--exit must be NAME:THRESHOLD with a threshold up to 1, not {text!r}")
    return name, value
