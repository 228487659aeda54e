"""What each ingredient of policy `cans` is worth: its regret without it, in every world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cans.learning.policies import ABLATIONS
from cans.simulation.reproduce.beyond.scenes import CANS, common, scenes, share
from cans.simulation.reproduce.beyond.studies import Beyond, load_grids
from cans.simulation.reproduce.claims.intervals import Interval, paired
from cans.simulation.reproduce.claims.verdicts import Check, holds

WORTH = 0.001  # an ingredient must save this share of the oracle's latency somewhere


@dataclass(frozen=True)
class Worth:
    """What one ingredient saves in one world, all models together."""

    saved: Interval  # share of the oracle's latency
    ratio: float | str  # regret without it over regret with it

    @property
    def helps(self) -> bool:
        return self.saved.above_zero and self.saved.mean >= WORTH

    @property
    def may_help(self) -> bool:
        return self.saved.high >= WORTH

    @property
    def harms(self) -> bool:
        return self.saved.below_zero and self.saved.mean <= -WORTH


def worth(beyond: Beyond, ablated: str, world: str) -> Worth | None:
    """None where it was not run."""
    found = list(scenes(beyond, (world,), CANS, ablated))
    if not found:
        return None
    pairs = [
        common(at.of(beyond, ablated).regret_ms, at.of(beyond, CANS).regret_ms) for at in found
    ]
    without, with_it = (np.sum(each, axis=0) for each in zip(*pairs, strict=True))
    optimum = sum(at.of(beyond, CANS).optimum_ms.mean() for at in found)
    return Worth(paired(without / optimum, with_it / optimum), share(without, with_it))


def every_ingredient_helps(beyond: Beyond) -> list[Check]:
    """A check for each ingredient; `--quick` leaves worlds out, and one of them may be the one."""
    checks = []
    for variant in ABLATIONS:
        found = {world: worth(beyond, variant, world) for world in beyond.values("world")}
        known = {world: each for world, each in found.items() if each is not None}
        if not known:
            continue
        worse = [world for world, each in known.items() if each.helps]
        better = [world for world, each in known.items() if each.harms]
        asked = {each.settings.world for each in load_grids() if each.settings.policy == variant}
        most = max(known, key=lambda world: known[world].saved.mean)
        checks.append(
            holds(
                f"{variant}: what it lacks helps in some world",
                bool(worse),
                any(each.may_help for each in known.values()) or not asked <= known.keys(),
                cans_is_better_in=worse,
                cans_is_worse_in=better,
                most_in=most,
                saves_there=known[most].saved,
            )
        )
    return checks
