"""The claims that compare methods at the paper's settings: C1 to C6, C10, C12 and C15.

Both policies of a comparison met the same rounds, so every difference is paired by seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.simulation.reproduce.claims.intervals import Interval, mean_interval, paired
from cans.simulation.reproduce.claims.verdicts import (
    MODEL_TITLES,
    Check,
    extreme,
    holds,
    title,
    values,
)
from cans.simulation.reproduce.studies.outcomes import Results

DW, WARM, LINUCB, FED = "fedlinucb-dw", "warmstart-linucb", "linucb", "fedlinucb"
LEARNERS = (DW, WARM, LINUCB, FED)
BASELINES = (WARM, LINUCB, FED, "random", "local")  # those of the paper
MODELS = tuple(MODEL_TITLES)
COMPARABLE = 0.10  # "comparable" means within this share


def lowest(results: Results, world: str, metric: str, others: Sequence[str]) -> list[Check]:
    return [extreme(results, metric, DW, others, model=m, world=world) for m in MODELS]


def fed_highest(results: Results, world: str, metric: str, models: Sequence[str]) -> list[Check]:
    others = (DW, WARM, LINUCB)
    return [
        extreme(results, metric, FED, others, lowest=False, model=m, world=world) for m in models
    ]


# --- C1 to C4: regret ---


def growth_exponent(results: Results, world: str, model: str) -> Interval:
    """The exponent of t in the second half of the regret curve; 1 is linear."""
    outcome = results.of(model=model, world=world, policy=DW)
    half = int(outcome.checkpoints[-1]) // 2
    late, early = outcome.curves["regret"][:, -1], outcome.at("regret", half)
    return mean_interval(np.log2(late / early))


def c1(results: Results, world: str) -> list[Check]:
    checks = lowest(results, world, "regret_ms", BASELINES)
    for model in MODELS:
        exponent = growth_exponent(results, world, model)
        checks.append(
            holds(
                f"{MODEL_TITLES[model]}: regret grows more slowly than the rounds",
                exponent.high < 1,
                exponent_in_second_half=exponent,
            )
        )
    return checks


def c2(results: Results, world: str) -> list[Check]:
    return fed_highest(results, world, "regret_ms", ("vgg16", "vit_b16"))


def c3(results: Results, world: str) -> list[Check]:
    return [
        extreme(results, "regret_ms", LINUCB, (other,), model=model, world=world)
        for model in ("vgg16", "resnet50")
        for other in ("random", "local")
    ]


def c4(results: Results, world: str) -> list[Check]:
    def regrets(model: str) -> tuple[Array, Array]:
        warm = values(results, "regret_ms", model=model, world=world, policy=WARM)
        return warm, values(results, "regret_ms", model=model, world=world, policy=LINUCB)

    checks = [
        extreme(results, "regret_ms", WARM, (LINUCB,), model=model, world=world)
        for model in ("vgg16", "vit_b16")
    ]
    warm, cold = regrets("resnet50")
    gap = mean_interval((warm - cold) / cold.mean())
    near = max(abs(gap.low), abs(gap.high)) <= COMPARABLE
    text = f"ResNet-50: {title(WARM)} and {title(LINUCB)} are within {COMPARABLE:.0%}"
    return [*checks, holds(text, near, relative_difference=gap)]


# --- C5 and C6: latency and estimation error ---


def first_rise(results: Results, world: str, model: str) -> Interval:
    """How far FedLinUCB's average latency climbs above that of the first ten rounds, in ms."""
    outcome = results.of(model=model, world=world, policy=FED)
    start = outcome.at("latency", 10)
    rises = [paired(outcome.at("latency", t), start) for t in (25, 50, 100, 250)]
    return max(rises, key=lambda rise: rise.low)


def c5(results: Results, world: str) -> list[Check]:
    checks = lowest(results, world, "latency_ms", BASELINES)
    checks += fed_highest(results, world, "latency_ms", MODELS)
    for model in MODELS:
        rise = first_rise(results, world, model)
        text = f"{MODEL_TITLES[model]}: {title(FED)}'s average latency rises before it falls"
        checks.append(holds(text, rise.above_zero, change_since_round_10_in_ms=rise))
    return checks


def c6(results: Results, world: str) -> list[Check]:
    checks = lowest(results, world, "error_ms", (WARM, LINUCB, FED))
    return checks + fed_highest(results, world, "error_ms", MODELS)


# --- C10, C12 and C15


def warm_start_gain(results: Results, world: str, model: str) -> Array:
    """Share of regret that the offline runs save, per seed."""
    with_it, without = (
        values(results, "regret_ms", model=model, world=world, policy=policy)
        for policy in (DW, "fedlinucb-decouple")
    )
    return 1 - with_it / without


def c10(results: Results, world: str) -> list[Check]:
    variants = ("fedlinucb-decouple", "linucb-warmstart")
    checks = lowest(results, world, "latency_ms", variants)
    checks += [
        extreme(results, "latency_ms", variants[0], variants[1:], model=model, world=world)
        for model in ("vgg16", "resnet50")
    ]
    gain = {model: warm_start_gain(results, world, model) for model in MODELS}
    for model in ("vgg16", "resnet50"):
        more = paired(gain["vit_b16"], gain[model])
        text = f"the warm start saves a larger share on ViT-B/16 than on {MODEL_TITLES[model]}"
        checks.append(holds(text, more.above_zero, difference_of_shares=more))
    return checks


def c12(results: Results, world: str) -> list[Check]:
    what: dict[str, Any] = {"model": "resnet50", "world": world}
    worse = [
        extreme(results, "regret_ms", "local", (other,), lowest=False, **what)
        for other in (DW, WARM, LINUCB)
    ]
    better = [extreme(results, "regret_ms", "local", (other,), **what) for other in (FED, "random")]
    return worse + better


def error_spread(results: Results, world: str, model: str, policy: str) -> float:
    """Standard deviation over seeds of the estimation error, as a share of its mean."""
    errors = results.of(model=model, world=world, policy=policy).error_ms
    return float(np.std(errors, ddof=1) / np.mean(errors)) if len(errors) > 1 else float("nan")


def c15(results: Results, world: str) -> list[Check]:
    # log of a standard deviation from n seeds has a standard error of 1 / sqrt(2 (n - 1))
    margin = float(np.exp(1.96 / np.sqrt(max(results.seeds - 1, 1))))
    checks = []
    for policy in LEARNERS:
        spread = {model: error_spread(results, world, model, policy) for model in MODELS}
        most = all(spread["resnet50"] > margin * spread[m] for m in ("vgg16", "vit_b16"))
        text = f"{title(policy)}: the error varies most on ResNet-50"
        shown = {f"{MODEL_TITLES[m]} sd / mean": round(s, 4) for m, s in spread.items()}
        checks.append(Check(text, bool(most), {**shown, "must_exceed_by": round(margin, 3)}))
    return checks
