"""Regret of the default policy against the release of commit f230c75, on the same seeds.

    python -m benchmarks regret

All nine worlds that release knew, three models, 25 and 200 devices; per cent of the oracle's
latency, of the honest devices where one lies. The old code is taken out of git into a temporary
folder and runs there by itself, so this needs a clone. Seeds that nothing was tuned on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RELEASE = "f230c75"
ROOT = Path(__file__).parent.parent
FIRST_SEED = int(os.environ.get("REGRET_FIRST_SEED", "440000"))
WORLDS = ("paper", "literal", "layered", "drifting", "cells", "codecs", "heterogeneous",
          "misspecified", "adversary")  # fmt: skip
MODELS = ("vgg16", "resnet50", "vit_b16")
FLEETS = {25: (2_500, 20), 200: (20_000, 20)}  # devices: rounds, seeds
TIMES_BAR, POINTS_BAR = 1.10, 0.05

# Run by either code: only what both have.
WORKER = """
import json, sys
from cans.simulation.run import Settings, play
worlds, models, fleets, first = json.loads(sys.argv[1])
for world in worlds:
    for devices, (rounds, seeds) in fleets.items():
        for model in models:
            what = Settings(model, "cans", world, devices=int(devices), rounds=rounds)
            made, lost = what.make_world(), []
            for seed in range(first, first + seeds):
                record = play(what, "fast", seed, made)
                honest = record.active != made.devices - 1
                counted = honest if world == "adversary" else record.active >= 0
                regret = record.regret_ms[counted].sum()
                lost.append(1e2 * regret / (record.expected_ms[counted].sum() - regret))
            print(json.dumps([f"{world} {model} N={devices}", lost]), flush=True)
"""


def lost(source: Path) -> dict[str, list[float]]:
    """By place, per cent of the oracle's latency that the code in a folder loses on each seed."""
    asked = json.dumps([WORLDS, MODELS, FLEETS, FIRST_SEED])
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, "-c", WORKER, asked]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(line) for line in done.stdout.splitlines())


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        archive = subprocess.run(
            ["git", "archive", RELEASE, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", name], input=archive.stdout, check=True)
        before, now = lost(Path(name) / "src"), lost(ROOT / "src")
    found, met = {}, {}
    for place, ours in now.items():
        here, there = (sum(each) / len(each) for each in (ours, before[place]))
        met[place] = here <= max(TIMES_BAR * there, there + POINTS_BAR)
        found[place] = f"{there:.3f} -> {here:.3f}{'' if met[place] else '  missed'}"
    return {
        "per_cent_above_the_oracle": found,
        "release": RELEASE,
        "first_seed": FIRST_SEED,
        "bars_met": met,
    }
