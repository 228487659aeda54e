"""What is reported of a run, and of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cans.learning.arithmetic.arrays import Array, IntArray
from cans.learning.messages import statistics_bytes
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.worlds.world import World

if TYPE_CHECKING:
    from cans.simulation.run import Settings

SUMMARISED = ("regret_ms", "mean_latency_ms", "estimation_error_ms", "uploads", "bytes")


@dataclass(frozen=True, eq=False)
class Run:
    """One seed's run: final numbers, and the curves behind the figures."""

    seed: int
    regret_ms: float  # Σ expected latency of the choice minus that of the best one
    mean_latency_ms: float  # measured, over all rounds
    estimation_error_ms: float | None  # mean |predicted - expected| at the chosen point
    uploads: int
    bytes: int  # exchanged for learning: every upload and its download
    picks: dict[int, int]  # partition point -> rounds
    picks_by_type: dict[str, dict[int, int]]
    ties: int
    probes: int  # small exchanges timed by devices that stayed local
    trials: int  # of parts that were left idle, beside an answer
    record: Record

    def to_dict(self) -> dict[str, Any]:
        """The run as it stands in JSON."""
        return {
            "seed": self.seed,
            "regret_ms": self.regret_ms,
            "mean_latency_ms": self.mean_latency_ms,
            "estimation_error_ms": self.estimation_error_ms,
            "uploads": self.uploads,
            "bytes": self.bytes,
            "picks": {str(point): count for point, count in self.picks.items()},
            "picks_by_type": {
                name: {str(point): count for point, count in picks.items()}
                for name, picks in self.picks_by_type.items()
            },
            "ties": self.ties,
            "probes": self.probes,
            "trials": self.trials,
        }

    def regret_curve(self) -> Array:
        """Cumulative regret after every round."""
        return np.cumsum(self.record.regret_ms)

    def latency_curve(self) -> Array:
        """Running average of the measured latency."""
        return running_mean(self.record.latency_ms)

    def error_curve(self) -> Array:
        """Running average of the estimation error."""
        return running_mean(self.record.error_ms)


def running_mean(values: Array) -> Array:
    result: Array = np.cumsum(values) / np.arange(1, len(values) + 1)
    return result


def measure(seed: int, record: Record, world: World, settings: Settings) -> Run:
    """Sum up a record."""
    policy = settings.method
    points = np.asarray(world.table.point_of)[record.picks]
    types = world.type_of[record.active]
    exchanged = sum(
        int(up + down) * statistics_bytes(world.table.columns(part.explains).shape[1])
        for part, up, down in zip(
            policy.parts, record.part_uploads, record.part_downloads, strict=False
        )
    )
    error = float(record.error_ms.mean())
    return Run(
        seed=seed,
        regret_ms=float(record.regret_ms.sum()),
        mean_latency_ms=float(record.latency_ms.mean()),
        estimation_error_ms=None if np.isnan(error) else error,
        uploads=int(record.uploads.sum()),
        bytes=exchanged,
        picks=_counts(points),
        picks_by_type={
            name: _counts(points[types == number]) for number, name in enumerate(world.types)
        },
        ties=int(record.ties[0]),
        probes=int(record.probes[0]),
        trials=int(record.trials[0]),
        record=record,
    )


def _counts(points: IntArray) -> dict[int, int]:
    values, counts = np.unique(points, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def mean_of(runs: Sequence[Run], name: str) -> float:
    """The mean of one number of the runs, in its unit."""
    return float(np.mean([getattr(run, name) for run in runs]))


def summary(runs: Sequence[Run]) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation over the seeds."""
    means: dict[str, float | None] = {}
    deviations: dict[str, float | None] = {}
    for name in SUMMARISED:
        values = [getattr(run, name) for run in runs]
        if None in values:
            means[name] = deviations[name] = None
            continue
        means[name] = mean_of(runs, name)
        deviations[name] = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": means, "std": deviations}
