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
from cans.simulation.crowd import ALLOCATED, CrowdSettings, mean_ms, play_record
from cans.simulation.reproduce.claims.intervals import mean_interval

SEEDS = range(440_000, 440_000 + int(os.environ.get("CROWD_SEEDS", "3")))
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
    """(seeds, 2) from the start and in the second half."""
    half = what.rounds // 2
    runs = [play_record(what, seed) for seed in SEEDS]
    return np.array([[mean_ms(each, since) for since in (0, half)] for each in runs])


def over(ours: Any, theirs: Any) -> dict[str, Any]:
    """Mean over mean, and the 95 % interval of the ratio from seed to seed."""
    ratio = float(ours.mean() / theirs.mean())
    found = mean_interval(ours / theirs)
    return {"ratio": ratio, "interval": [found.low, found.high]}


def of_fleet(settings: CrowdSettings) -> dict[str, Any]:
    what = replace(settings, policy="cans", rounds=EACH * settings.devices)
    ours = means(what)
    rivals = [
        means(replace(what, policy="linucb", hyperparameters=Hyperparameters(beta_ms=beta)))
        for beta in RADII
    ]
    local = means(replace(what, policy="local"))[:, 0]
    best = means(replace(what, policy=ALLOCATED))[:, 0]
    linucb = min((each[:, 0] for each in rivals), key=np.mean)
    late = min((each[:, 1] for each in rivals), key=np.mean)
    return {
        "seeds": len(SEEDS),
        "cans_ms": float(ours[:, 0].mean()),
        "second_half_ms": float(ours[:, 1].mean()),
        "best_static_ms": float(best.mean()),
        "over best, at once" if what.at_once else "over best": over(ours[:, 0], best),
        "over linucb": over(ours[:, 0], linucb),
        "over linucb late": over(ours[:, 1], late),
        "over local": over(ours[:, 0], local),
        "best static over linucb": over(best, linucb),
    }


def met(fleets: dict[str, Any]) -> dict[str, bool]:
    """Whether every fleet meets each bar."""
    return {
        bar: all(
            each[f"over {bar}"]["ratio"] <= most
            for each in fleets.values()
            if f"over {bar}" in each
        )
        for bar, most in BARS.items()
    }


def run() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, settings in FLEETS.items():
        found[name] = of_fleet(settings)
        print(name, found[name], flush=True)
    return {**found, "bars": BARS, "bars_met": met(found)}
