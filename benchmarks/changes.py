"""Something takes longer, or less long, for a while or for good: `cans` beside its rivals.

Drawn worlds (`CHANGES_WORLDS` of them): one of twelve, one of three models, 1, 5 or 25 devices.
After 300 inferences of each device the front-ends of one type, or of all, or the link or the server
of all take 0.1 to 30 times as long; in seven of ten worlds until each device has made 600. Per cent
above the oracle of that time, in windows of inferences per device: before, at once, later, and the
last hundred of a thousand. Each rival at the radius that turned out best in the last one.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.bent import RADII, RIVALS
from cans.learning.arithmetic.arrays import Array
from cans.learning.policies import Hyperparameters
from cans.simulation.run import Settings, play
from cans.simulation.worlds.backbones import MODELS
from cans.simulation.worlds.drift import Step, Steps
from cans.simulation.worlds.world import Participation, World

FIRST_SEED = 430_000
WORLDS_DRAWN = int(os.environ.get("CHANGES_WORLDS", "60"))
SEEDS = range(FIRST_SEED, FIRST_SEED + 5)
KINDS = (
    "layered", "bent-1", "bent-2", "bent-3", "cells", "codecs", "slow-server", "accelerator",
    "near-ties", "heavy-tailed", "heterogeneous", "paper",
)  # fmt: skip
DEVICES, FACTORS = (1, 5, 25), (0.1, 0.3, 3.0, 10.0, 30.0)
SEGMENTS = ("front-end", "link", "server")
CHANGED, BACK, END = 300, 600, 1000  # inferences per device
WINDOWS = {
    "before": (200, 300), "at once": (300, 320), "later": (500, 600), "back": (620, 700),
    "last": (900, 1000),
}  # fmt: skip
LATE_BAR = 3.0  # per cent above the oracle, in the last window


def draw(number: int) -> tuple[str, Settings, World]:
    """A world in which something changes, and what it is called."""
    rng = np.random.default_rng(FIRST_SEED + number)
    kind, model = KINDS[number % len(KINDS)], MODELS[number // len(KINDS) % len(MODELS)]
    devices, segment = int(rng.choice(DEVICES)), int(rng.integers(len(SEGMENTS)))
    factors = np.ones(len(SEGMENTS))
    factors[segment] = rng.choice(FACTORS)
    for_good = bool(rng.random() < 0.3)
    what = Settings(
        model,
        world=kind,
        devices=devices,
        rounds=devices * END,
        participation=Participation.ROUND_ROBIN,
    )
    world = what.make_world()
    alone = segment == 0 and rng.random() < 0.4
    concerned = int(rng.choice(world.type_of)) if alone else None
    until = None if for_good else devices * BACK
    front, link, server = factors.tolist()
    step = Step(devices * CHANGED, until, (front, link, server), type=concerned)
    who = "" if concerned is None else f" of {world.types[concerned]}"
    how_long = "for good" if for_good else "for a while"
    name = f"{kind} {model} N={devices}: {SEGMENTS[segment]}{who} x{factors[segment]:g} {how_long}"
    return name, what, replace(world, drift=Steps((step,)))


def above(what: Settings, world: World, policy: str, beta_ms: float = 50.0) -> Array:
    """(windows,) mean regret over the seeds, as a percentage of the oracle's latency."""
    what = replace(what, policy=policy, hyperparameters=Hyperparameters(beta_ms=beta_ms))
    found = []
    for seed in SEEDS:
        record = play(what, "fast", seed, world)
        best = record.expected_ms - record.regret_ms
        spans = [slice(what.devices * a, what.devices * b) for a, b in WINDOWS.values()]
        found.append([1e2 * record.regret_ms[s].sum() / best[s].sum() for s in spans])
    return np.array(found).mean(axis=0)


def run() -> dict[str, Any]:
    found: dict[str, Any] = {}
    ours, theirs = [], []
    for number in range(WORLDS_DRAWN):
        name, what, world = draw(number)
        here = above(what, world, "cans")
        rivals = {
            f"{rival}, beta {beta:g}": above(what, world, rival, beta)
            for rival in RIVALS
            for beta in RADII
        }
        best = min(rivals, key=lambda each: float(rivals[each][-1]))
        ours.append(here)
        theirs.append(rivals[best])
        found[f"{number} {name}"] = {
            "cans": dict(zip(WINDOWS, here.round(2).tolist(), strict=True)),
            best: dict(zip(WINDOWS, rivals[best].round(2).tolist(), strict=True)),
        }
        print(number, name, here.round(2), best, rivals[best].round(2), flush=True)
    last = list(WINDOWS).index("last")
    late = {"cans": np.array(ours), "best rival": np.array(theirs)}
    return {
        "per_cent_above_the_oracle": found,
        "first_seed": FIRST_SEED,
        "seeds": len(SEEDS),
        "mean": {
            name: dict(zip(WINDOWS, each.mean(axis=0).round(2).tolist(), strict=True))
            for name, each in late.items()
        },
        "worlds_above_the_bar": {
            name: int((each[:, last] > LATE_BAR).sum()) for name, each in late.items()
        },
        "worlds": WORLDS_DRAWN,
    }
