"""Where policies are compared beyond the paper, and the check that compares their regret.

Differences are paired by seed: both policies met the same rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cans.learning.arithmetic.arrays import Array
from cans.simulation.reproduce.beyond.studies import Beyond, Trial
from cans.simulation.reproduce.claims.intervals import mean_interval, paired
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES, Check, holds

CANS, DW, LINUCB = "cans", "fedlinucb-dw", "linucb"


@dataclass(frozen=True)
class Scene:
    """A world and a model in which everything asked for was run."""

    world: str
    model: str

    @property
    def title(self) -> str:
        return f"{self.world}, {MODEL_TITLES[self.model]}"

    def of(self, beyond: Beyond, policy: str, **values: Any) -> Trial:
        return beyond.of(world=self.world, model=self.model, policy=policy, **values)


def scenes(beyond: Beyond, worlds: Sequence[str], *policies: str, **values: Any) -> Iterator[Scene]:
    """Where these policies were run."""
    for world in worlds:
        for model in MODEL_TITLES:
            what = {"world": world, "model": model, **values}
            if all(beyond.has(policy=policy, **what) for policy in policies):
                yield Scene(world, model)


def common(first: Array, second: Array) -> tuple[Array, Array]:
    """Two samples over the seeds that both were run with."""
    seeds = min(len(first), len(second))
    return first[:seeds], second[:seeds]


def seconds(values: Array) -> Array:
    return values / 1e3


def share(ours: Array, theirs: Array) -> float | str:
    """Ratio of the means."""
    if theirs.mean() <= 0:
        return "∞" if ours.mean() > 0 else 1.0
    return round(float(ours.mean() / theirs.mean()), 5)


def at_most(
    scene: Scene, ours: Array, theirs: Array, factor: float, rival: str, *, strictly: bool = True
) -> Check:
    """Our regret is at most this share of theirs; not `strictly`: it is not clearly above it."""
    ours, theirs = common(seconds(ours), seconds(theirs))
    excess = paired(ours, factor * theirs)
    fine = excess.high <= 0 if strictly else excess.low <= 0
    times = "" if factor == 1 else f"{factor:.3g} × "
    return holds(
        f"{scene.title}: regret {'≤' if strictly else 'not above'} {times}{rival}",
        fine,
        excess.low <= 0,
        cans_s=mean_interval(ours),
        rival_s=mean_interval(theirs),
        difference_s=excess,
        ratio=share(ours, theirs),
    )
