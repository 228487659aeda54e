"""Runs every study once, over all seeds on all cores, and keeps what figures and claims need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from os import cpu_count
from typing import Any, TypeVar

import numpy as np

from cans.errors import RunError
from cans.learning.arithmetic.arrays import Array, IntArray
from cans.learning.confidence import communication_bound, regret_bound
from cans.simulation.engines.arrays import evidence
from cans.simulation.metrics import Run, measure
from cans.simulation.reproduce.studies.experiments import Experiment, Study, study
from cans.simulation.run import play
from cans.simulation.workers.workers import Workers, run_all

Kept = TypeVar("Kept")

CURVES = ("regret", "latency", "error", "uploads")
LANDMARKS = (10, 25, 50, 100, 250, 500)  # rounds that claims ask about


@dataclass(frozen=True, eq=False)
class Outcome:
    """One study over all seeds: final numbers, (seeds,), and curves, (seeds, checkpoints)."""

    regret_ms: Array
    latency_ms: Array
    error_ms: Array  # nan for policies that predict nothing
    uploads: Array
    checkpoints: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    curves: Mapping[str, Array] = field(default_factory=dict)

    def at(self, curve: str, rounds: int) -> Array:
        """A curve's value after so many rounds (or the last checkpoint before)."""
        index = int(np.searchsorted(self.checkpoints, rounds, side="right")) - 1
        return self.curves[curve][:, max(index, 0)]


@dataclass(frozen=True, eq=False)
class Results:
    """The outcome of every study, and the experiments that asked for them."""

    outcomes: Mapping[Study, Outcome]
    experiments: Mapping[str, Experiment]
    seeds: int

    def of(self, **values: Any) -> Outcome:
        """The outcome of the study with these values (see `experiments.study`)."""
        return self.outcomes[study(**values)]

    def sweep(self, experiment: str, name: str) -> list[Any]:
        """The values an experiment sweeps a field over."""
        return self.experiments[experiment].values(name)


def checkpoints(rounds: int) -> IntArray:
    """The rounds that curves keep: dense at the start, where everything happens."""
    spread = np.concatenate([np.geomspace(1, rounds, 40), np.linspace(1, rounds, 60)])
    landmarks = [each for each in (*LANDMARKS, max(rounds // 2, 1)) if each <= rounds]
    return np.unique(np.concatenate([np.round(spread).astype(np.int64), landmarks]))


def run_studies(
    studies: Iterable[Study],
    seeds: int,
    progress: Callable[[int], None],
    workers: Workers | None = None,
) -> dict[Study, Outcome]:
    """Play every study with every seed."""
    tasks = {each: partial(play_all, each, seeds) for each in studies}
    return run_tasks(tasks, lambda _: progress(seeds), workers)


def run_tasks(
    tasks: Mapping[Study, Callable[[], Kept]],
    done: Callable[[Study], None],
    workers: Workers | None,
) -> dict[Study, Kept]:
    """Run tasks on a cluster, or on all cores of this machine."""
    if workers is None:
        return in_threads(tasks, done)
    kept: dict[Study, Kept] = {}
    for each, result in run_all(workers, tasks):
        kept[each] = result
        done(each)
    return kept


def in_threads(
    tasks: Mapping[Study, Callable[[], Kept]], done: Callable[[Study], None]
) -> dict[Study, Kept]:
    """Run tasks on all cores; threads suffice, because compiled code frees the lock."""
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        pending: dict[Future[Kept], Study] = {
            pool.submit(task): each for each, task in tasks.items()
        }
        kept = {}
        try:
            for future in as_completed(pending):
                kept[pending[future]] = future.result()
                done(pending[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return kept


def play_all(what: Study, seeds: int) -> Outcome:
    """One study over all its seeds."""
    keep = checkpoints(what.settings.rounds)
    kept = [_keep(play_one(what, seed), keep) for seed in range(seeds)]
    finals, curves = zip(*kept, strict=True)
    regret, latency, error, uploads = np.array(finals, dtype=float).T
    if not np.isfinite([regret, latency]).all():
        raise RunError(f"{what} gave latencies that are not numbers")
    by_name = {name: np.array([each[name] for each in curves]) for name in CURVES}
    return Outcome(regret, latency, error, uploads, keep, by_name)


def play_one(what: Study, seed: int) -> Run:
    world = what.make_world()
    record = play(what.settings, "fast", seed, world)
    return measure(seed, record, world, what.settings)


def _keep(run: Run, keep: IntArray) -> tuple[tuple[float | None, ...], dict[str, Array]]:
    """Final numbers and thinned curves; the full record is let go."""
    curves = {
        "regret": run.regret_curve(),
        "latency": run.latency_curve(),
        "error": run.error_curve(),
        "uploads": np.cumsum(run.record.uploads).astype(np.float64),
    }
    finals = (run.regret_ms, run.mean_latency_ms, run.estimation_error_ms, run.uploads)
    return finals, {name: curve[keep - 1] for name, curve in curves.items()}


def bound_curves(what: Study, seed: int, at: IntArray) -> tuple[Array, Array]:
    """(regret in ms, uploads) that the supplement allows after each of these rounds."""
    settings, world, policy = what.settings, what.make_world(), what.settings.method
    episode = world.episode(settings.rounds, seed, settings.hyperparameters.offline_runs)
    regret, uploads = np.zeros(len(at)), np.zeros(len(at))
    for index, rounds in enumerate(at):
        so_far = episode._replace(active=episode.active[:rounds])
        for part in policy.parts:
            for e in evidence(part, world, policy, so_far, settings.hyperparameters):
                regret[index] += regret_bound(e)
                uploads[index] += communication_bound(e)
    return regret, uploads


def worst_regret_ms(what: Study, rounds: int) -> float:
    """What picking the slowest point in every round would cost: no bound above this says much."""
    world = what.make_world()
    worst = []
    for device in range(world.devices):
        total = np.sum(world.segments_ms(device), axis=0)
        worst.append(total.max() - total.min())
    return rounds * float(np.mean(worst))
