"""The experiments behind the figures: one TOML each, a list of grids of settings to run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np

from cans.learning.policies import Hyperparameters
from cans.simulation.run import Settings
from cans.simulation.worlds.named import make_world
from cans.simulation.worlds.world import World

_NUMBERS = {each.name for each in fields(Hyperparameters)}


@dataclass(frozen=True)
class Study:
    """What is run over all seeds: a simulation, and into how many equal types the fleet falls."""

    settings: Settings
    types: int | None = None  # None: the paper's tiers, 30 / 40 / 30 %

    def make_world(self) -> World:
        world = self.settings.make_world()
        return world if self.types is None else with_types(world, self.types)


def study(*, rounds_per_device: int = 0, types: int | None = None, **values: Any) -> Study:
    """The study with these values, whether they are settings or hyper-parameters.

    >>> study(policy="linucb", beta_ms=10.0).settings.hyperparameters.beta_ms
    10.0
    """
    numbers = {name: values.pop(name) for name in list(values) if name in _NUMBERS}
    if values.get("gamma") == 0 and _gamma_of(values.get("world", Settings.world)) == 0:
        values.pop("gamma")  # what the world does anyway: the same run
        values.pop("gamma_mode", None)
    settings = Settings(**values, hyperparameters=Hyperparameters(**numbers))
    if rounds_per_device:
        settings = replace(settings, rounds=rounds_per_device * settings.devices)
    return Study(settings, types)


@cache
def _gamma_of(world: str) -> float:
    """A world's own gamma."""
    return make_world(world, Settings.model, 1).gamma


def with_types(world: World, types: int) -> World:
    """The same world with its fleet in `types` groups of (nearly) equal size.

    With more groups than tiers, neighbouring groups are of one tier: they run equally fast but do
    not know it, so that their number changes what is pooled and nothing else.
    """
    tiers = len(world.types)
    tier_of_type = np.arange(types) * tiers // types
    type_of = np.arange(world.devices) * types // world.devices
    place_of_tier = [world.place_of[np.flatnonzero(world.type_of == t)[0]] for t in range(tiers)]
    return replace(
        world,
        types=tuple(f"{world.types[tier]}-{label}" for label, tier in enumerate(tier_of_type)),
        type_of=type_of,
        place_of=np.asarray(place_of_tier)[tier_of_type[type_of]],
    )


@dataclass(frozen=True)
class Experiment:
    """One TOML: grids of values, each a field of `Study`."""

    name: str
    grids: tuple[dict[str, tuple[Any, ...]], ...]

    def studies(self) -> Iterator[Study]:
        for grid in self.grids:
            for values in product(*grid.values()):
                yield study(**dict(zip(grid, values, strict=True)))

    def values(self, name: str) -> list[Any]:
        """What a field is swept over: its longest list of values."""
        swept = [grid[name] for grid in self.grids if name in grid]
        longest = max(swept, key=len)
        return list(longest)


@cache
def load_experiments(quick: bool = False) -> dict[str, Experiment]:
    """Every experiment of the package; quick ones sweep fewer values."""
    folder = files("cans.simulation.reproduce.studies").joinpath("grids")
    found = {}
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        name = file.name.removesuffix(".toml")
        grids = tomllib.loads(file.read_text("utf-8"))["runs"]
        found[name] = Experiment(name, tuple(_grid(grid, quick) for grid in grids))
    return found


def _grid(table: dict[str, Any], quick: bool) -> dict[str, tuple[Any, ...]]:
    fewer = table.pop("quick", {})
    return {name: tuple(values) for name, values in (table | (fewer if quick else {})).items()}
