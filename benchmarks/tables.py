"""Tables that were measured by somebody else: `cans` on any of them, beside its rivals.

`TABLES` tables, drawn at random (`drawn_table.py`), with 1, 5, 25 and 100 devices; apart from each
other those in which some measurements took several times as long, and those without. Per cent above
the oracle over all 400 inferences of each device, over the last 100 of them, and over the first
five; each rival at the radius of 0, 1, 5, 10, 50, 150 and 500 ms that turned out best over the last
ones: some of these tables are of seconds.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bent
from benchmarks.bent import BEHIND_BAR, COLD, EARLY, LATE, RIVALS
from benchmarks.bent import SMALL_FLEET as SMALL
from benchmarks.drawn_table import write_table
from cans.learning.arithmetic.arrays import Array
from cans.learning.policies import Hyperparameters
from cans.simulation.run import Settings, play
from cans.simulation.worlds.world import Participation

RADII = (*bent.RADII, 150.0, 500.0)
FIRST_SEED = 450_000
TABLES = int(os.environ.get("TABLES", "60"))
DEVICES = tuple(map(int, os.environ.get("TABLES_DEVICES", "1,5,25,100").split(",")))
SEEDS_OF = {True: 10, False: 4}  # of small fleets, of which one run says little, and of others
WINDOWS = ("all", "late", "first")
LATEST = WINDOWS.index("late")


def above(trace: Path, policy: str, devices: int, beta_ms: float = 50.0) -> Array:
    """(windows,) regret as a percentage of the oracle's latency, the mean of all seeds."""
    what = Settings(
        policy=policy,
        world="trace",
        trace=trace,
        devices=devices,
        rounds=devices * (EARLY + LATE),
        participation=Participation.ROUND_ROBIN,
        hyperparameters=Hyperparameters(beta_ms=beta_ms),
    )
    made, shares = what.make_world(), []
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS_OF[devices <= SMALL]):
        record = play(what, "fast", seed, made)
        best = record.expected_ms - record.regret_ms
        spans = slice(None), slice(devices * EARLY, None), slice(0, devices * COLD)
        shares.append([1e2 * record.regret_ms[span].sum() / best[span].sum() for span in spans])
    mean: Array = np.array(shares).mean(axis=0)
    return mean


def run() -> dict[str, Any]:
    found: dict[str, str] = {}
    shares: dict[str, list[tuple[Array, Array]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(TABLES):
            trace = Path(folder) / f"{number}.csv"
            drawn, style = write_table(trace, FIRST_SEED + number)
            kind = "with outliers" if style.outliers else "without outliers"
            for devices in DEVICES:
                ours = above(trace, "cans", devices)
                rivals = {
                    f"{rival}, beta {beta:g}": above(trace, rival, devices, beta)
                    for rival in RIVALS
                    for beta in RADII
                }
                best = min(rivals, key=lambda each: float(rivals[each][LATEST]))
                shares.setdefault(f"N={devices}, {kind}", []).append((ours, rivals[best]))
                place = f"{number} N={devices}: {drawn}"
                found[place] = f"{text(ours)}; {text(rivals[best])} by {best}"
                print(place, found[place], flush=True)
    return {
        "per_cent_above_the_oracle": found,
        "of_each_kind": {name: summary(each) for name, each in sorted(shares.items())},
        "tables": TABLES,
        "first_seed": FIRST_SEED,
    }


def summary(shares: list[tuple[Array, Array]]) -> dict[str, Any]:
    """Means over some tables, and in how many of them `cans` is late."""
    both = np.array(shares)
    behind = both[:, 0, LATEST] - both[:, 1, LATEST]
    return {
        "tables": len(both),
        "cans": text(both[:, 0].mean(axis=0)),
        "best rival": text(both[:, 1].mean(axis=0)),
        "above 1 % late": int((both[:, 0, LATEST] > 1.0).sum()),
        f"more than {BEHIND_BAR} points behind the rival": int((behind > BEHIND_BAR).sum()),
    }


def text(shares: Array) -> str:
    return ", ".join(f"{name} {each:.2f}" for name, each in zip(WINDOWS, shares, strict=True))
