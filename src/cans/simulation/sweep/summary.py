"""Means over seeds with 95 % intervals, one for each setting of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cans.simulation.reproduce.claims.intervals import Interval, mean_interval
from cans.simulation.sweep.cells import NUMBERS, Row
from cans.simulation.sweep.results import COLUMNS

ALWAYS = ("policy", "model", "world", "devices")
_RESULTS = {*NUMBERS, "seed", "picks", "cell"}
_AXES = tuple(name for name in COLUMNS if name not in _RESULTS)
SHOWN = ("regret_ms", "mean_latency_ms", "estimation_error_ms", "uploads", "bytes")


@dataclass(frozen=True)
class Group:
    """One setting over its seeds."""

    axes: dict[str, Any]  # those that name it: the usual four, and all that differ in the sweep
    seeds: int
    numbers: dict[str, Interval | None]  # None: the policy predicts nothing

    @property
    def title(self) -> str:
        """
        >>> Group({"policy": "cans", "model": "vgg16", "gamma": 0.1}, 3, {}).title
        'cans, vgg16, gamma 0.1'
        """
        words = ("policy", "model", "world")
        return ", ".join(
            str(value) if name in words else f"{name} {value}" for name, value in self.axes.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """The group as it stands in JSON."""
        numbers = {
            name: None if each is None else _document(each) for name, each in self.numbers.items()
        }
        return {**self.axes, "seeds": self.seeds, **numbers}


def _document(interval: Interval) -> dict[str, float | None]:
    """Exact, unlike what is shown; one seed has no interval, and infinity no place in JSON."""
    return {
        name: value if np.isfinite(value) else None for name, value in interval._asdict().items()
    }


def summarise(rows: list[Row]) -> list[Group]:
    """Groups in the order of the file."""
    differ = [name for name in _AXES if len({row[name] for row in rows}) > 1]
    names = [*ALWAYS, *(name for name in differ if name not in ALWAYS)]
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return [
        Group(
            dict(zip(names, key, strict=True)),
            len(group),
            {name: _interval([row[name] for row in group]) for name in SHOWN},
        )
        for key, group in found.items()
    ]


def _interval(values: list[float | None]) -> Interval | None:
    numbers = [value for value in values if value is not None]
    return mean_interval(np.array(numbers, dtype=float)) if len(numbers) == len(values) else None
