"""Everyone at once: mean latency in a crowd over that of the best joint assignment, twelve fleets.

The best assignment is a planner's that knows every parameter, played on the same pauses and noise.
LinUCB is given its best radius of a few, from the start and in the second half each.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from cans.learning.policies import Hyperparameters
from cans.simulation.crowd import CrowdSettings, mean_ms, play_seed

SEEDS = range(90_000, 90_000 + int(os.environ.get("CROWD_SEEDS", "3")))
RADII = (0.0, 10.0, 50.0)
EACH = 40  # inferences per device
FLEETS = {
    "8 mixed, load 0.9": CrowdSettings(devices=8, load=0.9),
    "25 mixed, load 0.3": CrowdSettings(load=0.3),
    "25 mixed, load 0.9": CrowdSettings(load=0.9),
    "25 Pis, load 0.9": CrowdSettings(fleet="rpi5", load=0.9),
    "25 Pis, load 2": CrowdSettings(fleet="rpi5", load=2.0),
    "25 Xavier, load 0.9": CrowdSettings(fleet="xavier-nx", server_slower=4.0, load=0.9),
    "25 Pis, ResNet-50, load 0.9": CrowdSettings("resnet50", fleet="rpi5", load=0.9),
    "100 mixed, load 2": CrowdSettings(devices=100, load=2.0),
    "200 Pis, 4 workers, load 2": CrowdSettings(devices=200, fleet="rpi5", workers=4.0, load=2.0),
    "at once, 8 mixed": CrowdSettings(devices=8, at_once=True),
    "at once, 8 Pis": CrowdSettings(devices=8, fleet="rpi5", at_once=True),
    "at once, 8 Pis, ResNet-50": CrowdSettings("resnet50", devices=8, fleet="rpi5", at_once=True),
}
BARS = {"best": 1.10, "best, at once": 1.15, "linucb": 0.95, "linucb late": 1.05, "local": 1.01}


def means(what: CrowdSettings) -> Any:
    """(seeds, 4) from the start and in the second half, of the policy and of the best."""
    half = what.rounds // 2
    runs = [play_seed(what, seed) for seed in SEEDS]
    both = [(each.record, each.best) for each in runs]
    return np.array([[mean_ms(r, n) for r in pair for n in (0, half)] for pair in both])


def run() -> dict[str, Any]:
    found: dict[str, Any] = {}
    met = dict.fromkeys(BARS, True)
    for name, settings in FLEETS.items():
        what = replace(settings, policy="cans", rounds=EACH * settings.devices)
        ours = means(what)
        rivals = [
            means(replace(what, policy="linucb", hyperparameters=Hyperparameters(beta_ms=beta)))
            for beta in RADII
        ]
        local = means(replace(what, policy="local"))[:, 0].mean()
        best = ours[:, 2].mean()
        linucb = min(each[:, 0].mean() for each in rivals)
        late = min(each[:, 1].mean() for each in rivals)
        ratios = {
            "best, at once" if what.at_once else "best": ours[:, 0].mean() / best,
            "linucb": ours[:, 0].mean() / linucb,
            "linucb late": ours[:, 1].mean() / late,
            "local": ours[:, 0].mean() / local,
        }
        for bar, ratio in ratios.items():
            met[bar] &= bool(ratio <= BARS[bar])
        found[name] = {
            "cans": f"{ours[:, 0].mean():.1f} ms, second half {ours[:, 1].mean():.1f}",
            "best static": f"{best:.1f} ms",
            **{f"over {bar}": round(float(ratio), 3) for bar, ratio in ratios.items()},
        }
        print(name, found[name], flush=True)
    return {"seeds": len(SEEDS), **found, "bars": BARS, "bars_met": met}
