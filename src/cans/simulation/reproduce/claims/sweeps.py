"""The claims about a sweep: C7 (fleet size), C8 (gamma), C11 (bounds) and C13 (case study).

Runs of different fleets meet different rounds, so these differences are Welch intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.simulation.reproduce.claims.intervals import Interval, contrast, mean_interval
from cans.simulation.reproduce.claims.methods import BASELINES, DW, FED, MODELS
from cans.simulation.reproduce.claims.verdicts import (
    MODEL_TITLES,
    Check,
    extreme,
    holds,
    signed,
    title,
    values,
)
from cans.simulation.reproduce.studies.experiments import study
from cans.simulation.reproduce.studies.outcomes import Results, bound_curves

VISIBLE = 0.01  # a trend smaller than this share per doubling is no trend


# --- C7 and C8: fleet size and heterogeneity within a group ---


def c7(results: Results, world: str) -> list[Check]:
    sizes = results.sweep("fleet-size", "devices")
    checks = [
        extreme(results, "latency_ms", DW, BASELINES, model=m, world=world, devices=n)
        for n in sizes
        for m in MODELS
    ]
    for model in MODELS:
        before, after = (
            values(results, "latency_ms", model=model, world=world, policy=FED, devices=n)
            for n in (25, max(sizes))
        )
        change = contrast((1, after), (-1, before))
        text = f"{MODEL_TITLES[model]}: {title(FED)} is slower with N = {max(sizes)} than with 25"
        checks.append(holds(text, change.above_zero, change_ms=change))
    return checks


def gamma_rise(results: Results, world: str, model: str, mode: str, policy: str = DW) -> Interval:
    """Relative rise of average latency from gamma 0 to the largest gamma (difference of logs)."""
    return contrast(*_gamma_terms(results, world, model, mode, policy))


def _gamma_terms(
    results: Results, world: str, model: str, mode: str, policy: str = DW
) -> tuple[tuple[float, Array], tuple[float, Array]]:
    what = {"model": model, "world": world, "policy": policy, "gamma_mode": mode}
    calm = np.log(values(results, "latency_ms", gamma=0.0, **what))
    largest = max(results.sweep("gamma", "gamma"))
    return (1.0, np.log(values(results, "latency_ms", gamma=largest, **what))), (-1.0, calm)


def c8(results: Results, world: str) -> list[Check]:
    checks = []
    for mode in ("device", "round"):
        for model in MODELS:
            rise = gamma_rise(results, world, model, mode)
            text = f"{MODEL_TITLES[model]}: latency rises with gamma drawn per {mode}"
            checks.append(holds(text, rise.above_zero, relative_rise=rise))
        for model in ("vgg16", "vit_b16"):
            ours = _gamma_terms(results, world, model, mode)
            rest = _gamma_terms(results, world, "resnet50", mode)
            more = contrast(*ours, *((-weight, sample) for weight, sample in rest))
            text = f"{MODEL_TITLES[model]} reacts more than ResNet-50 to gamma per {mode}"
            checks.append(holds(text, more.above_zero, difference_of_relative_rises=more))
    return checks


def gamma_remark(results: Results, world: str) -> str:
    def largest(policy: str) -> float:
        rises = [
            gamma_rise(results, world, m, mode, policy).mean
            for m in MODELS
            for mode in ("device", "round")
        ]
        return max(rises, key=abs)

    gamma = max(results.sweep("gamma", "gamma"))
    return (
        f"The largest change at gamma = {gamma:.0%} is {signed(largest(DW))} for {title(DW)} and "
        f"{signed(largest('oracle'))} for the oracle, which makes no mistakes."
    )


# --- C11: the bounds


@cache
def final_bounds(world: str, model: str, seed: int) -> tuple[float, float]:
    """(regret in ms, uploads) allowed at the end of a run, whatever the run did."""
    what = study(model=model, world=world, policy=DW)
    regret, uploads = bound_curves(what, seed, np.array([what.settings.rounds]))
    return float(regret[0]), float(uploads[0])


def bound_shares(
    results: Results, world: str, model: str, beta_ms: float | str
) -> tuple[Array, Array]:
    """Regret and uploads of every seed, as shares of their bounds."""
    outcome = results.of(model=model, world=world, policy=DW, beta_ms=beta_ms)
    bounds = np.array([final_bounds(world, model, seed) for seed in range(len(outcome.regret_ms))])
    return outcome.regret_ms / bounds[:, 0], outcome.uploads / bounds[:, 1]


def c11(results: Results, world: str) -> list[Check]:
    checks = []
    for model in MODELS:
        for beta in results.sweep("bounds", "beta_ms"):
            shares = bound_shares(results, world, model, beta)
            radius = "theory" if beta == "theory" else f"{beta:g} ms"
            for name, share in zip(("regret", "uploads"), shares, strict=True):
                text = f"{MODEL_TITLES[model]}: {name} below its bound (radius {radius})"
                checks.append(holds(text, share.max() < 1, largest_share=float(share.max())))
    return checks


# --- C13: the case study

CASE = {"policy": DW, "participation": "round-robin", "rounds_per_device": 100}
CASE_SWEEPS = {  # field -> (the values of the other two, the sign of its trend)
    "devices": ({"types": 3}, -1, "more devices M"),
    "types": ({"devices": 24}, 1, "more types K"),
    "offline_runs": ({"devices": 24, "types": 3}, -1, "more offline runs (larger rho)"),
}


def regret_per_device(results: Results, world: str, model: str, swept: str) -> tuple[Any, Array]:
    """(values swept over, (values, seeds) regret per device in ms) of the case study."""
    fixed = CASE_SWEEPS[swept][0]
    steps = results.sweep("case-study", swept)
    rows = []
    for step in steps:
        what: dict[str, Any] = {"model": model, "world": world, **CASE, **fixed, swept: step}
        rows.append(results.of(**what).regret_ms / what["devices"])
    return steps, np.array(rows)


def trend(steps: Sequence[float], rows: Array) -> Interval:
    """Slope of log regret per doubling of (1 +) the swept value, one per seed."""
    x = np.log2(np.asarray(steps, dtype=float) + (min(steps) == 0))
    x = x - x.mean()
    return mean_interval(x @ np.log2(np.maximum(rows, 1e-9)) / (x @ x))


def c13(results: Results, world: str) -> list[Check]:
    checks = []
    for swept, (_, sign, words) in CASE_SWEEPS.items():
        for model in MODELS:
            slope = trend(*regret_per_device(results, world, model, swept))
            direction = "falls" if sign < 0 else "rises"
            text = f"{MODEL_TITLES[model]}: regret per device {direction} with {words}"
            visible = abs(slope.mean) >= np.log2(1 + VISIBLE)
            right = slope.below_zero if sign < 0 else slope.above_zero
            checks.append(holds(text, right and visible, exponent=slope))
    return checks
