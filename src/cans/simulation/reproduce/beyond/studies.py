"""Runs the settings of `beyond.toml` and keeps of each what the bars and figures need."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np

from cans.errors import RunError
from cans.learning.arithmetic.arrays import Array, IntArray
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.metrics import measure
from cans.simulation.reproduce.studies.experiments import Study, study
from cans.simulation.reproduce.studies.outcomes import run_tasks
from cans.simulation.run import play
from cans.simulation.workers.workers import Workers
from cans.simulation.worlds.drift import link_steps
from cans.simulation.worlds.world import World

FIRST_SEED = 430_000  # `cans` was tuned, and earlier versions judged, on seeds below
SETTLED = 100  # rounds after which a fleet should have learned
RECOVERED = slice(50, 150)  # rounds after a step of the link in which it should have again
BEFORE, AFTER, BLOCK = 100, 250, 10  # rounds shown around a step, averaged in blocks
LAST = 500  # rounds in which a lock-in would show


@dataclass(frozen=True, eq=False)
class Trial:
    """One setting over its seeds; axis 0 is the seed, milliseconds are expected ones."""

    regret_ms: Array  # (seeds,)
    optimum_ms: Array  # summed over all rounds: what the oracle needs
    settled_ms: Array  # mean after the first rounds
    settled_optimum_ms: Array
    honest_ms: Array  # mean of all devices but the last, the one that lies in world `adversary`
    bytes: Array
    wrongly_local: Array  # share of the last rounds
    curve: Array  # (seeds, len(marks)) regret so far
    recovery: Array  # (seeds, 2) latency over the optimum, less one, after each step of the link
    around: Array  # (seeds, 2, blocks) latency around the steps
    optimum_around: Array

    @property
    def seeds(self) -> int:
        return len(self.regret_ms)


@dataclass(frozen=True, eq=False)
class Beyond:
    """Every trial, by its study."""

    trials: Mapping[Study, Trial]

    def of(self, **values: Any) -> Trial:
        return self.trials[study(**values)]

    def has(self, **values: Any) -> bool:
        return study(**values) in self.trials

    def values(self, field: str) -> list[Any]:
        """Every value that a setting takes anywhere, in the order of the file."""
        return list(dict.fromkeys(getattr(each.settings, field) for each in self.trials))

    @property
    def seeds(self) -> int:
        return max(each.seeds for each in self.trials.values())

    def best_beta(
        self, world: str, model: str, policy: str = "fedlinucb-dw", **values: Any
    ) -> float:
        """The radius with which a policy has its lowest mean regret here."""
        what = {"world": world, "model": model, "policy": policy, **values}
        radii = [beta for beta in radii_of(self) if self.has(beta_ms=beta, **what)]
        return min(radii, key=lambda beta: float(self.of(beta_ms=beta, **what).regret_ms.mean()))


def radii_of(beyond: Beyond) -> list[float]:
    return sorted({float(each.settings.hyperparameters.beta_ms) for each in beyond.trials})


@cache
def load_grids(quick: bool = False) -> dict[Study, int]:
    """Every setting and its number of seeds."""
    text = files("cans.simulation.reproduce.beyond").joinpath("beyond.toml").read_text("utf-8")
    wanted: dict[Study, int] = {}
    for table in tomllib.loads(text)["runs"]:
        grid = table | (table.pop("quick") if quick else {})
        grid.pop("quick", None)
        seeds = grid.pop("seeds")
        for values in product(*grid.values()):
            each = study(**dict(zip(grid, values, strict=True)))
            wanted[each] = max(seeds, wanted.get(each, 0))
    return wanted


def run_beyond(
    wanted: Mapping[Study, int],
    progress: Callable[[int], None],
    workers: Workers | None = None,
) -> Beyond:
    """Play every setting, each over its seeds."""
    tasks = {each: partial(play_trial, each, seeds) for each, seeds in wanted.items()}
    done = run_tasks(tasks, lambda each: progress(wanted[each]), workers)
    return Beyond({each: done[each] for each in wanted})


def play_trial(what: Study, seeds: int) -> Trial:
    """One setting over its seeds."""
    world = what.make_world()
    kept = [_keep(what, world, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
    fields = {name: np.array([each[name] for each in kept]) for name in kept[0]}
    if not np.isfinite(fields["regret_ms"]).all():
        raise RunError(f"{what} gave latencies that are not numbers")
    return Trial(**fields)


def _keep(what: Study, world: World, seed: int) -> dict[str, Any]:
    record = play(what.settings, "fast", seed, world)
    expected, optimum = record.expected_ms, record.expected_ms - record.regret_ms
    honest = record.active != world.devices - 1
    local = record.picks == world.table.local
    return {
        "regret_ms": record.regret_ms.sum(),
        "optimum_ms": optimum.sum(),
        "settled_ms": expected[SETTLED:].mean(),
        "settled_optimum_ms": optimum[SETTLED:].mean(),
        "honest_ms": expected[honest].mean() if honest.any() else 0.0,
        "bytes": measure(seed, record, world, what.settings).bytes,
        "wrongly_local": (local & (record.regret_ms > 1e-9))[-LAST:].mean(),
        "curve": np.cumsum(record.regret_ms)[marks(what.settings.rounds) - 1],
        **_steps(record, optimum),
    }


def _steps(record: Record, optimum: Array) -> dict[str, Array]:
    """What happens when the link changes; in other worlds than `drifting` nothing does."""
    recovery, around, best = [], [], []
    for step in link_steps(len(optimum)):
        window = slice(step + RECOVERED.start, step + RECOVERED.stop)
        recovery.append(record.expected_ms[window].sum() / optimum[window].sum() - 1)
        shown = slice(step - BEFORE, step + AFTER)
        around.append(record.expected_ms[shown].reshape(-1, BLOCK).mean(axis=1))
        best.append(optimum[shown].reshape(-1, BLOCK).mean(axis=1))
    return {
        "recovery": np.array(recovery),
        "around": np.array(around),
        "optimum_around": np.array(best),
    }


def marks(rounds: int) -> IntArray:
    """The rounds that a regret curve keeps."""
    return np.unique(np.round(np.geomspace(1, rounds, 45)).astype(np.int64))
