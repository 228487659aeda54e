"""The report's tables: final regrets beside an independent run, and three seeds beside all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cans.simulation.reproduce.claims.methods import BASELINES, DW, MODELS
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES, title, values
from cans.simulation.reproduce.studies.outcomes import Results

# Seconds, mean and standard deviation of 20 seeds (random and local: mean only).
INDEPENDENT: dict[str, dict[str, str]] = {
    DW: {"vgg16": "8.76 ± 0.25", "resnet50": "2.77 ± 0.23", "vit_b16": "2.04 ± 0.54"},
    "fedlinucb-decouple": {
        "vgg16": "9.67 ± 0.31",
        "resnet50": "3.24 ± 0.26",
        "vit_b16": "3.10 ± 0.35",
    },
    "warmstart-linucb": {
        "vgg16": "9.70 ± 0.12",
        "resnet50": "3.77 ± 0.13",
        "vit_b16": "5.25 ± 0.18",
    },
    "linucb": {"vgg16": "10.98 ± 0.11", "resnet50": "4.25 ± 0.11", "vit_b16": "6.79 ± 0.15"},
    "fedlinucb": {"vgg16": "34.4 ± 2.0", "resnet50": "25.6 ± 3.4", "vit_b16": "27.5 ± 2.5"},
    "random": {"vgg16": "245", "resnet50": "84", "vit_b16": "107"},
    "local": {"vgg16": "137", "resnet50": "28", "vit_b16": "157"},
}


@dataclass(frozen=True)
class Table:
    """Headings and rows of text."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    heat: Sequence[Sequence[float]] = ()  # of the cells after the first: -1 good to 1 bad


def regret_table(results: Results) -> Table:
    """Every policy's final regret in world `paper`, beside the independent run."""
    headings = ["world “paper”, regret (s)"]
    for model in MODELS:
        headings += [MODEL_TITLES[model], "independent"]
    rows = []
    for policy in results.sweep("comparison", "policy"):
        row = [title(policy)]
        for model in MODELS:
            row.append(_spread(results, "paper", model, policy))
            row.append(INDEPENDENT.get(policy, {}).get(model, "–"))
        rows.append(row)
    caption = "Mean ± standard deviation over seeds, seconds summed over all rounds."
    return Table(caption, headings, rows)


def literal_table(results: Results) -> Table:
    """The same in world `literal`."""
    rows = [
        [title(policy), *(_spread(results, "literal", model, policy) for model in MODELS)]
        for policy in results.sweep("comparison", "policy")
    ]
    return Table("", ["world “literal”, regret (s)", *MODEL_TITLES.values()], rows)


def seeds_table(results: Results) -> Table:
    """The paper's three seeds beside all of ours, world `paper`."""
    headings = ["world “paper”, regret (s)"]
    for model in MODELS:
        headings += [f"{MODEL_TITLES[model]}, 3 seeds", f"{results.seeds} seeds"]
    rows = []
    for policy in (DW, *BASELINES):
        row = [title(policy)]
        for model in MODELS:
            row.append(_spread(results, "paper", model, policy, 3))
            row.append(_spread(results, "paper", model, policy))
        rows.append(row)
    return Table("", headings, rows)


def _spread(results: Results, world: str, model: str, policy: str, first: int | None = None) -> str:
    seconds = values(results, "regret_ms", world=world, model=model, policy=policy)[:first]
    deviation = float(np.std(seconds, ddof=1)) if len(seconds) > 1 else 0.0
    digits = 2 if seconds.mean() < 100 else 0
    return f"{seconds.mean():,.{digits}f} ± {deviation:.{digits}f}"
