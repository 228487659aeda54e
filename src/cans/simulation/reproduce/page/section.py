"""What a section of the report is, and the helpers that sections share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cans.simulation.reproduce.claims.bar import Bar
from cans.simulation.reproduce.claims.methods import BASELINES, DW, MODELS
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES, values
from cans.simulation.reproduce.figures.plots import Figure, Line, Panel, line
from cans.simulation.reproduce.page.tables import Table
from cans.simulation.reproduce.studies.outcomes import Outcome, Results

WORLDS = {"paper": "World “paper”", "literal": "World “literal”"}
SHOWN = (DW, *BASELINES, "offload", "oracle")


@dataclass(frozen=True, eq=False)
class Section:
    """Title, paragraphs, figures and tables."""

    title: str
    text: Sequence[str]
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    bars: Sequence[Bar] = ()  # shown first


def by_world_and_model(name: str, panel: Callable[[str, str], Panel]) -> Figure:
    """A row per world, a column per model."""
    return Figure(
        name,
        [(heading, [panel(world, m) for m in MODELS]) for world, heading in WORLDS.items()],
    )


def curves(
    results: Results, name: str, curve: str, label: str, policies: Iterable[str], **axes: Any
) -> Figure:
    """A curve of several policies at the paper's settings."""
    chosen = tuple(policies)
    scale = 1e3 if curve == "regret" else 1.0

    def panel(world: str, model: str) -> Panel:
        found: list[Line] = []
        for policy in chosen:
            outcome = results.of(model=model, world=world, policy=policy)
            samples = outcome.curves[curve] / scale
            if np.isfinite(samples).all():  # a policy that predicts nothing has no error
                found.append(line(policy, outcome.checkpoints, samples))
        return Panel(MODEL_TITLES[model], "rounds", label, found, **axes)

    return by_world_and_model(name, panel)


def sweep_line(
    look: str, steps: Sequence[float], outcomes: Sequence[Outcome], label: str = "", dash: str = ""
) -> Line:
    """Average latency against a swept value."""
    samples = np.array([outcome.latency_ms for outcome in outcomes]).T
    return line(look, steps, samples, label=label, dash=dash, marked=True)


def per_model(say: Callable[[str], str]) -> str:
    """“1 on VGG-16, 2 on ResNet-50 and 3 on ViT-B/16”."""
    first, second, third = (f"{say(model)} on {MODEL_TITLES[model]}" for model in MODELS)
    return f"{first}, {second} and {third}"


def mean(results: Results, metric: str, world: str, model: str, policy: str) -> float:
    return float(np.mean(values(results, metric, world=world, model=model, policy=policy)))
