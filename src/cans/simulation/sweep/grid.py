"""From SWEEP.toml to the cells of a sweep: every setting of its grids, with every seed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from cans.errors import InputError, unknown_name
from cans.learning.policies import Hyperparameters
from cans.simulation.reproduce.studies.experiments import Study, study
from cans.simulation.run import Settings, pick_engine
from cans.simulation.worlds.trace_file import find_trace

MOST_CELLS = 10_000_000
_AXES = {
    *(each.name for each in fields(Settings) if each.name != "hyperparameters"),
    *(each.name for each in fields(Hyperparameters)),
    "types",
    "rounds_per_device",
}


@dataclass(frozen=True)
class Cell:
    """One run: a setting and a seed."""

    study: Study
    seed: int


@dataclass(frozen=True)
class Sweep:
    """What a file asks for."""

    name: str
    engine: str
    cells: tuple[Cell, ...]


def read_sweep(path: Path) -> Sweep:
    """The sweep of a TOML file; whatever is wrong with it is one line that says where."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from None
    try:
        engine = pick_engine(table.pop("engine", None))
        cells = tuple(dict.fromkeys(_cells(table, path.parent)))
        _check_worlds(cells)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return Sweep(path.stem, engine, cells)


def _cells(table: dict[str, Any], folder: Path) -> Iterator[Cell]:
    """The cells of every grid; what stands above the first [[runs]] holds for all of them."""
    grids = table.pop("runs", [{}])
    if not isinstance(grids, list) or not all(isinstance(each, dict) for each in grids):
        raise InputError("runs must be tables: [[runs]]")
    for grid in grids:
        axes = {name: _values(name, value) for name, value in (table | grid).items()}
        seeds = _seeds(axes.pop("seeds", (3,)))
        unknown = next((name for name in axes if name not in _AXES), None)
        if unknown is not None:
            raise unknown_name("setting", unknown, sorted({*_AXES, "seeds", "engine", "runs"}))
        many = len(seeds)
        for values in axes.values():
            many *= len(values)
        if many > MOST_CELLS:
            raise InputError(f"a grid of {many:,} cells is too large: at most {MOST_CELLS:,}")
        for values in product(*axes.values()):
            setting = _study(dict(zip(axes, values, strict=True)), folder)
            yield from (Cell(setting, seed) for seed in seeds)


def _values(name: str, value: Any) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise InputError(f"{name} has no values")
    return values


def _seeds(values: tuple[Any, ...]) -> Sequence[int]:
    """`seeds = 20` are the seeds 0 to 19; a list names them."""
    if not all(type(each) is int and each >= 0 for each in values):
        raise InputError("seeds must be a number of seeds or a list of them")
    if len(values) == 1:
        if values[0] < 1:
            raise InputError("seeds must be at least 1")
        return range(values[0])
    return list(values)


def _study(values: dict[str, Any], folder: Path) -> Study:
    if "trace" in values:
        values["trace"] = find_trace(Path(str(values["trace"])), folder)
    try:
        return study(**values)
    except TypeError as error:
        told = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise InputError(f"a value of the wrong type in: {told} ({error})") from None


def _check_worlds(cells: tuple[Cell, ...]) -> None:
    """Build every world once, so that a bad value is an error before anything runs."""
    for each in dict.fromkeys(_without_policy(cell.study) for cell in cells):
        try:
            each.make_world()
        except TypeError as error:
            raise InputError(f"a value of the wrong type in {each.settings}: {error}") from None


def _without_policy(setting: Study) -> Study:
    plain = replace(
        setting.settings,
        policy=Settings.policy,
        rounds=1,
        hyperparameters=Hyperparameters(),
    )
    return replace(setting, settings=plain)
