"""The traces that come with the package: `cans` beside LinUCB and FedLinUCB-DW at every radius.

Per cent above the oracle over all 400 inferences of each device, and over the last 100 of them. The
rivals at radii of 0, 1, 5, 10 and 50 ms, and at 150, because everything takes three times as long
in these traces; `TRACE_SEEDS` seeds, fleets of `TRACE_DEVICES`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bent
from benchmarks.bent import EARLY, LATE, RIVALS
from cans.learning.policies import Hyperparameters
from cans.simulation.reproduce.claims.intervals import mean_interval
from cans.simulation.run import Settings, pick_engine, play
from cans.simulation.worlds.trace_file import shipped_traces
from cans.simulation.worlds.world import Participation

RADII = (*bent.RADII, 150.0)
FIRST_SEED = 442_000
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("TRACE_SEEDS", "10")))
DEVICES = tuple(map(int, os.environ.get("TRACE_DEVICES", "1,5,25").split(",")))


def above(trace: str, policy: str, devices: int, beta_ms: float = 50.0) -> dict[str, str]:
    """Regret as a percentage of the oracle's latency, with 95 % intervals over the seeds."""
    what = Settings(
        policy=policy,
        world="trace",
        trace=Path(trace),
        devices=devices,
        rounds=devices * (EARLY + LATE),
        participation=Participation.ROUND_ROBIN,
        hyperparameters=Hyperparameters(beta_ms=beta_ms),
    )
    made, shares = what.make_world(), []
    engine = pick_engine(None, made)
    for seed in SEEDS:
        record = play(what, engine, seed, made)
        best = record.expected_ms - record.regret_ms
        late = slice(devices * EARLY, None)
        shares.append(
            [
                1e2 * record.regret_ms.sum() / best.sum(),
                1e2 * record.regret_ms[late].sum() / best[late].sum(),
            ]
        )
    found = [mean_interval(each) for each in np.array(shares).T]
    return {
        name: f"{each.mean:.2f} ({each.low:.2f} to {each.high:.2f})"
        for name, each in zip(("all", "late"), found, strict=True)
    }


def run() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for trace in shipped_traces():
        for devices in DEVICES:
            here = found[f"{trace} N={devices}"] = {"cans": above(trace, "cans", devices)}
            for rival in RIVALS:
                for beta in RADII:
                    here[f"{rival} beta {beta:g}"] = above(trace, rival, devices, beta)
            print(trace, devices, here, flush=True)
    return {"per_cent_above_the_oracle": found, "seeds": len(SEEDS)}
