"""World `adversary`: what one liar costs the honest devices, run by run.

Bar: in none of 100 runs on each model, with 10 and with 25 devices, are the honest devices more
than 1 % above the oracle's latency over the whole run. A mean would hide what the bar is about.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from cans.simulation.run import Settings, play

BAR_PER_CENT = 1.0
RUNS, FIRST_SEED = 100, 440_100
MODELS, FLEETS = ("vgg16", "resnet50", "vit_b16"), (10, 25)


def honest_per_cent(settings: Settings, seed: int) -> float:
    """The latency of the devices that do not lie above the oracle's, in per cent."""
    world = settings.make_world()
    record = play(settings, "fast", seed, world)
    honest = (world.report == 1.0)[record.active]
    lost, taken = record.regret_ms[honest].sum(), record.expected_ms[honest].sum()
    return float(100.0 * lost / (taken - lost))


def of_fleet(model: str, devices: int) -> dict[str, Any]:
    settings = Settings(model=model, policy="cans", world="adversary", devices=devices)
    seeds = range(FIRST_SEED, FIRST_SEED + RUNS)
    with ThreadPoolExecutor() as pool:
        found = np.array(list(pool.map(partial(honest_per_cent, settings), seeds)))
    return {
        "mean_per_cent": float(found.mean()),
        "worst_per_cent": float(found.max()),
        "runs_above_bar": int((found > BAR_PER_CENT).sum()),
    }


def run() -> dict[str, Any]:
    honest_per_cent(Settings(policy="cans", world="adversary", devices=2, rounds=20), 0)  # compile
    fleets = {
        f"{model}_{devices}_devices": of_fleet(model, devices)
        for model in MODELS
        for devices in FLEETS
    }
    met = {name: fleet["runs_above_bar"] == 0 for name, fleet in fleets.items()}
    return {"runs": RUNS, "first_seed": FIRST_SEED, **fleets, "bars_met": met}
