"""The testbed's bars in one document: `python -m benchmarks.testbed REPORT.json ...`.

Reads the reports that `cans testbed run` has left (fleet, link-change, outage, ...), and writes
what the bars are about to benchmarks/results/testbed.json; experiments that are there already and
not given again stay. An experiment takes minutes, so running them is left to whoever wants to: see
docs/testbed.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.__main__ import machine, rounded

RESULTS = Path(__file__).parent / "results" / "testbed.json"
KEPT = (
    "model", "calibration", "best_fixed", "gap_closed", "excess", "after_change", "outage",
    "contention",
)  # fmt: skip


def condensed(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what only its own tables need."""
    experiment = report["experiment"]
    return {
        "machine": machine(),
        "network": report["network"],
        "mode": experiment["mode"],
        "rounds": experiment["rounds"],
        "models": [
            {
                **{key: model[key] for key in KEPT if key in model},
                "policies": {
                    label: {key: value for key, value in found.items() if key != "picks"}
                    for label, found in model["policies"].items()
                },
            }
            for model in report["models"]
        ],
    }


def bars(found: dict[str, Any]) -> dict[str, Any]:
    """What was asked of the testbed, and what came out; None: not run."""
    fleet, types, change, outage, crowd = (
        found[name]["models"][0] if name in found else None
        for name in ("fleet", "fleet-types", "link-change", "outage", "contention-free-running")
    )
    calibrated = [
        each["within_15_percent"]
        for experiment in found.values()
        for model in experiment["models"]
        for each in model["calibration"]
    ]
    return {
        "cans_gap_closed_first_100 (>= 0.8)": fleet
        and fleet["gap_closed"]["cans"]["100"]["gap_closed"],
        "cans_rounds_until_back_within_10_percent (<= 50)": change
        and {
            phase: policies["cans"]["back_within_10_percent_after"]
            for phase, policies in change["after_change"].items()
        },
        "cans_outage_answered": outage
        and f"{outage['outage']['cans']['answered']} of {outage['outage']['cans']['inferences']}",
        "cans_outage_slowest_over_local (< 2)": outage
        and outage["outage"]["cans"]["slowest_over_local"],
        "cans_without_types_over_with_first_100 (<= 1.02)": types
        and types["policies"]["cans (no types)"]["first"]["100"]
        / types["policies"]["cans"]["first"]["100"],
        "contention (early_over_linucb <= 0.9, later_over_joint <= 1.1, none refused)": crowd
        and crowd["contention"]["cans"],
        "devices_within_15_percent": f"{sum(calibrated)} of {len(calibrated)}",
    }


def main() -> None:
    if not sys.argv[1:]:
        sys.exit("python -m benchmarks.testbed REPORT.json ...")
    found = {}
    if RESULTS.exists():
        found = json.loads(RESULTS.read_text(encoding="utf-8"))["experiments"]
    for name in sys.argv[1:]:
        report = json.loads(Path(name).read_text(encoding="utf-8"))
        mode = report["experiment"]["mode"]
        key = report["experiment"]["name"] + ("" if mode == "one-at-a-time" else f"-{mode}")
        found[key] = condensed(report)
    document = rounded({"benchmark": "testbed", "bars": bars(found), "experiments": found})
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
