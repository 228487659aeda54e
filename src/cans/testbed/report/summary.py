"""From rows to numbers: means over first inferences, the gap closed, recovery, outage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import inf
from statistics import fmean, median
from typing import Any

from cans.testbed.report.excess import excess
from cans.testbed.report.records import FIXED, SWEEP, Row, latency_ms
from cans.testbed.run.experiment import Experiment
from cans.testbed.run.experiment_run import Outcome

FIRST = (30, 100, 300)
WINDOW = 10  # rounds that are averaged to say whether latency is back


def summarise(experiment: Experiment, outcome: Outcome) -> dict[str, Any]:
    """One model's results as a document."""
    by_policy: dict[str, list[Row]] = defaultdict(list)
    for row in outcome.rows:
        if row["policy"] != SWEEP:
            by_policy[row["policy"]].append(row)
    labels = [FIXED, *(each.label for each in experiment.policies)]
    labels = [label for label in labels if label in by_policy]
    firsts = [n for n in FIRST if n <= experiment.rounds] or [experiment.rounds]
    document: dict[str, Any] = {
        "model": outcome.model,
        "calibration": [each.to_dict() for each in outcome.calibration],
        "policies": {label: _policy(by_policy[label], firsts) for label in labels},
        "best_fixed": _best_fixed(experiment, outcome),
    }
    document["gap_closed"] = _gaps(experiment, document["policies"], firsts)
    if FIXED in by_policy:
        document["excess"] = {
            label: excess(by_policy[label], by_policy[FIXED], experiment.rounds)
            for label in labels
            if label != FIXED
        }
    if experiment.mode == "free-running":
        document["contention"] = {
            label: _contention(label, by_policy, experiment) for label in labels
        }
    if experiment.changes and FIXED in by_policy:
        document["after_change"] = {
            str(phase): {
                label: _recovery(by_policy[label], by_policy[FIXED], phase, experiment)
                for label in labels
            }
            for phase in experiment.phases()[1:]
        }
    if experiment.outages:
        local = {each.device: each.local_ms for each in outcome.calibration}
        document["outage"] = {
            label: _outage(by_policy[label], local, experiment) for label in labels
        }
    return document


def _answered(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row["error"]]


def _mean(rows: Sequence[Row]) -> float | None:
    """All devices count alike, however many inferences each has made."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in _answered(rows):
        found[row["device"]].append(latency_ms(row))
    return fmean(map(fmean, found.values())) if found else None


def _policy(rows: Sequence[Row], firsts: Sequence[int]) -> dict[str, Any]:
    answered = _answered(rows)
    picks = Counter(f"{row['point_name']}/{row['codec']}" for row in answered)
    return {
        "inferences": len(rows),
        "not_answered": len(rows) - len(answered),
        "fallbacks": sum(bool(row["fallback"]) for row in answered),
        "mean_ms": _mean(rows),
        "median_ms": median(map(latency_ms, answered)) if answered else None,
        "first": {str(n): _mean([row for row in rows if row["round"] < n]) for n in firsts},
        "energy_mj": fmean(row["energy_mj"] for row in answered) if answered else None,
        "picks": dict(picks.most_common()),
    }


def _best_fixed(experiment: Experiment, outcome: Outcome) -> list[dict[str, Any]]:
    found = []
    for phase, swept in sorted(outcome.swept.items()):
        for calibrated, (device, row) in zip(
            outcome.calibration, sorted(swept.best.items()), strict=True
        ):
            found.append(
                {
                    "device": calibrated.device,
                    "from_round": phase,
                    "choice": outcome.choices[row].label,
                    "mean_ms": swept.mean_ms[device][row],
                    "local_ms": swept.mean_ms[device][outcome.choices[-1].row],
                    "offload_ms": swept.mean_ms[device][outcome.choices[0].row],
                }
            )
    return found


def _gaps(
    experiment: Experiment, policies: dict[str, Any], firsts: Sequence[int]
) -> dict[str, Any]:
    """(linucb - policy) / (linucb - best fixed), and the paper's per cent below linucb."""
    base = next((each.label for each in experiment.policies if each.name == "linucb"), None)
    if base is None:
        return {}
    found: dict[str, Any] = {}
    for label, policy in policies.items():
        found[label] = {}
        for n in map(str, firsts):
            linucb, own = policies[base]["first"][n], policy["first"][n]
            fixed = policies[FIXED]["first"][n] if FIXED in policies else None
            share = None
            if fixed is not None and linucb > fixed:
                share = (linucb - own) / (linucb - fixed)
            below = 100 * (linucb - own) / linucb
            found[label][n] = {"gap_closed": share, "percent_below_linucb": below}
    return found


def _contention(
    label: str, by_policy: dict[str, list[Row]], experiment: Experiment
) -> dict[str, Any]:
    """How a policy does in a crowd: early beside LinUCB, later beside the joint assignment."""
    early = min(FIRST[0], experiment.rounds)

    def ratio(to: str | None, start: int, stop: float) -> float | None:
        own, other = (
            _mean([row for row in by_policy.get(name or "", ()) if start <= row["round"] < stop])
            for name in (label, to)
        )
        return own / other if own is not None and other else None

    rows = by_policy[label]
    fallbacks = [row["fallback"] for row in _answered(rows) if row["fallback"]]
    first = sum("as quickly as it used to" in each for each in fallbacks)
    linucb = next((each.label for each in experiment.policies if each.name == "linucb"), None)
    waits = [row["queue_ms"] for row in _answered(rows) if row["queue_ms"] is not None]
    return {
        "early_over_linucb": ratio(linucb, 0, early),
        "later_over_joint": ratio(FIXED, early, inf),
        "mean_wait_ms": fmean(waits) if waits else None,
        "stayed_local": sum(row["answered_by"] == "device" for row in _answered(rows)) / len(rows),
        "device_was_first": first,
        "refused": len(fallbacks) - first,
        "not_answered": len(rows) - len(_answered(rows)),
    }


def _recovery(
    rows: Sequence[Row], fixed: Sequence[Row], phase: int, experiment: Experiment
) -> dict[str, Any]:
    """When latency is back within 10 % of the new best fixed choice, and how it is after 50."""

    def ratio(start: int, stop: int) -> float | None:
        own = _mean([row for row in rows if phase + start <= row["round"] < phase + stop])
        best = _mean([row for row in fixed if phase + start <= row["round"] < phase + stop])
        return own / best if own is not None and best else None

    left = experiment.rounds - phase
    windows = [(start, ratio(start, start + WINDOW)) for start in range(0, left - WINDOW + 1)]
    back = next((start for start, found in windows if found is not None and found <= 1.1), None)
    return {
        "back_within_10_percent_after": back,
        "first_50_over_best_fixed": ratio(0, 50),
        "after_50_over_best_fixed": ratio(50, left) if left > 50 else None,
    }


def _outage(rows: Sequence[Row], local: dict[str, float], experiment: Experiment) -> dict[str, Any]:
    during = [row for row in rows if experiment.server_is_down(row["round"])]
    answered = _answered(during)
    ratios = [latency_ms(row) / local[row["device"]] for row in answered]
    return {
        "inferences": len(during),
        "answered": len(answered),
        "mean_over_local": fmean(ratios) if ratios else None,
        "slowest_over_local": max(ratios, default=None),
    }
