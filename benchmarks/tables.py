"""Tables that were measured by somebody else: `cans` on any of them, beside its rivals.

`TABLES` tables, drawn at random (`drawn_table.py`), with 1, 5, 25 and 100 devices. Per cent above
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
from benchmarks.bent import BEHIND_BAR, COLD, EARLY, FAR_BAR, LATE, NEAR_BAR, RIVALS
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
    shares: dict[int, dict[str, list[Array]]] = {
        devices: {"cans": [], "best rival": []} for devices in DEVICES
    }
    above_bar, behind = dict.fromkeys(DEVICES, 0), dict.fromkeys(DEVICES, 0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(TABLES):
            trace = Path(folder) / f"{number}.csv"
            drawn = write_table(trace, FIRST_SEED + number)
            for devices in DEVICES:
                ours = above(trace, "cans", devices)
                rivals = {
                    f"{rival}, beta {beta:g}": above(trace, rival, devices, beta)
                    for rival in RIVALS
                    for beta in RADII
                }
                best = min(rivals, key=lambda each: float(rivals[each][1]))
                shares[devices]["cans"].append(ours)
                shares[devices]["best rival"].append(rivals[best])
                above_bar[devices] += ours[1] > (NEAR_BAR if devices <= SMALL else FAR_BAR)
                behind[devices] += ours[1] > rivals[best][1] + BEHIND_BAR
                found[f"{number} N={devices}: {drawn}"] = (
                    f"{text(ours)}; {text(rivals[best])} by {best}"
                )
            print(number, drawn, found[f"{number} N={DEVICES[-1]}: {drawn}"], flush=True)
    return {
        "per_cent_above_the_oracle": found,
        "mean": {
            f"N={devices}": {name: text(np.mean(each, axis=0)) for name, each in both.items()}
            for devices, both in shares.items()
        },
        "above_the_bar_late": {f"N={devices}": int(each) for devices, each in above_bar.items()},
        "behind_a_rival_late": {f"N={devices}": int(each) for devices, each in behind.items()},
        "tables": TABLES,
        "first_seed": FIRST_SEED,
    }


def text(shares: Array) -> str:
    return ", ".join(f"{name} {each:.2f}" for name, each in zip(WINDOWS, shares, strict=True))
