"""A server that is ten times slower for a minute: how soon a crowd is back, on three fleets.

Mean latency over that of the best joint assignment, of the 2,000 inferences or so that begin a
minute after the server is well again. What the best assignment takes then is the mean of all seeds:
its own luck with waiting is not the question. How large that luck is says the first line of each
fleet, the best assignment of every seed over that mean. And how steady choices are: how many
devices change theirs within 100 ms, and how often each does, before the trouble begins.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from cans.simulation.crowd import (
    ALLOCATED,
    CrowdSettings,
    most_switching,
    play_record,
    play_seed,
    switches,
)
from cans.simulation.engines.crowd import CrowdRecord
from cans.simulation.reproduce.claims.intervals import mean_interval

SEEDS = range(445_000, 445_000 + int(os.environ.get("CROWD_SEEDS", "3")))
BEGINS_S, ENDS_S = 20.0, 80.0
BACK_S, JUDGED = ENDS_S + 60.0, 2_000  # from then on, so many inferences
FLEETS = {
    "8 mixed, load 0.9": CrowdSettings(devices=8, load=0.9),
    "12 Pis, load 0.6": CrowdSettings(devices=12, fleet="rpi5", load=0.6),
    "12 Xavier, load 0.6": CrowdSettings(
        devices=12, fleet="xavier-nx", server_slower=4.0, load=0.6
    ),
}
BAR = 1.05


def per_second(what: CrowdSettings) -> float:
    """How many inferences the fleet makes in a second, by a short run."""
    trial = play_record(replace(what, policy=ALLOCATED, rounds=20 * what.devices), 0)
    return len(trial.picks) / float(np.nanmax(trial.started_s))


def within(record: CrowdRecord, start: float, stop: float) -> float:
    """Mean latency of what was begun then."""
    then = (record.started_s >= start) & (record.started_s < stop)
    return float(np.nanmean(record.latency_ms[then]))


def of_fleet(settings: CrowdSettings) -> dict[str, Any]:
    rate = per_second(settings)
    ends_s = BACK_S + JUDGED / rate
    what = replace(settings, policy="cans", rounds=int(1.15 * rate * ends_s))
    runs = [play_seed(what, seed, slow_from_s=BEGINS_S, slow_until_s=ENDS_S) for seed in SEEDS]
    ours = np.array([within(each.record, BACK_S, ends_s) for each in runs])
    best = np.array([within(each.best, BACK_S, ends_s) for each in runs])
    ratios = ours / best.mean()
    steady = [_before(each.record) for each in runs]
    most = [most_switching(each) for each in steady]
    interval = mean_interval(ratios)
    return {
        "seeds": len(SEEDS),
        "best over its mean": [float(each) for each in np.sort(best / best.mean())[[0, -1]]],
        "over best, a minute after": [round(float(each), 3) for each in ratios],
        "mean and 95 % interval": [interval.mean, interval.low, interval.high],
        "back": int((ratios <= BAR).sum()),
        "back, over the best of the same seed": int((ours / best <= BAR).sum()),
        "probes": [each.record.probes for each in runs],
        "most switching in 100 ms": most,
        "steady": sum(each <= max(1, 0.05 * settings.devices) for each in most),
        "most switching in 100 ms, looks included": [
            most_switching(each._replace(looked=np.zeros_like(each.looked))) for each in steady
        ],
        "switches per device and second": round(float(np.mean([*map(switches, steady)])), 3),
    }


def run() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, settings in FLEETS.items():
        found[name] = of_fleet(settings)
        print(name, found[name], flush=True)
    return {**found, "bar": BAR, "bars_met": met(found)}


def met(fleets: dict[str, Any]) -> dict[str, bool]:
    """Every run of every fleet is back in time, and was steady before."""
    return {
        what: all(each[what] == each["seeds"] for each in fleets.values())
        for what in ("back", "steady")
    }


def _before(record: CrowdRecord) -> CrowdRecord:
    """The steady state before the trouble."""
    then = (record.started_s >= BEGINS_S / 2) & (record.started_s < BEGINS_S)
    return CrowdRecord(*(
        each[then] if isinstance(each, np.ndarray) else each for each in record
    ))  # fmt: skip
