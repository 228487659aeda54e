"""Results made up by a formula, so that claims can be tested both ways without a single run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from cans.simulation.reproduce.studies.experiments import Study, load_experiments
from cans.simulation.reproduce.studies.outcomes import CURVES, Outcome, Results, checkpoints

SEEDS = 20
Formula = Callable[[Study], dict[str, float]]


class MadeUp(Mapping[Study, Outcome]):
    """An outcome for whatever study is asked for."""

    def __init__(self, formula: Formula, seeds: int) -> None:
        self.formula, self.seeds = formula, seeds

    def __getitem__(self, study: Study) -> Outcome:
        numbers = self.formula(study)
        wave = np.linspace(-1.0, 1.0, self.seeds)  # the same deviation in every study: paired
        keep = checkpoints(study.settings.rounds)
        share = keep / keep[-1]
        finals = {
            name: numbers[name] * (1 + numbers.get(f"{name}_spread", 0.01) * wave)
            for name in ("regret_ms", "latency_ms", "error_ms", "uploads")
        }
        shapes = {
            "regret": share ** numbers["growth"],
            "latency": 1 + numbers["bump"] * np.exp(-((keep - 50) ** 2) / 2000.0),
            "error": 1 / np.sqrt(share),
            "uploads": share,
        }
        values = [finals["regret_ms"], finals["latency_ms"], finals["error_ms"], finals["uploads"]]
        curves = {
            name: final[:, None] * shapes[name][None, :]
            for name, final in zip(CURVES, values, strict=True)
        }
        return Outcome(*values, keep, curves)

    def __iter__(self) -> Iterator[Study]:
        return iter(())

    def __len__(self) -> int:
        return 0


def results(formula: Formula, seeds: int = SEEDS, quick: bool = False) -> Results:
    return Results(MadeUp(formula, seeds), load_experiments(quick), seeds)


_RANK = {
    "fedlinucb-dw": 1.0,
    "fedlinucb-decouple": 1.2,
    "linucb-warmstart": 1.6,
    "warmstart-linucb": 1.5,
    "linucb": 2.0,
    "local": 8.0,
    "fedlinucb": 10.0,
    "random": 20.0,
    "oracle": 0.5,
}


def as_claimed(study: Study) -> dict[str, float]:
    """A world in which all of the paper's claims are true."""
    settings = study.settings
    model, policy = settings.model, settings.policy
    rank = _RANK.get(policy, 5.0)
    if policy == "warmstart-linucb" and model == "resnet50":
        rank = 1.99
    if policy == "fedlinucb-decouple" and model == "vit_b16":
        rank = 1.5
    types = study.types or 3
    case = settings.devices ** (0.8 if study.types else 0.0) * types**0.2
    case /= (1 + settings.hyperparameters.offline_runs) ** 0.1
    sensitive = 0.2 if model == "resnet50" else 1.0
    crowd = settings.devices / 25 if policy == "fedlinucb" else 1.0
    return {
        "regret_ms": 1000.0 * rank * case,
        "latency_ms": 10.0 * rank * crowd * (1 + sensitive * (settings.gamma or 0.0)),
        "error_ms": rank,
        "error_ms_spread": 0.05 if model == "resnet50" else 0.005,
        "uploads": 80.0,
        "growth": 0.5,
        "bump": 1.0 if policy == "fedlinucb" else 0.0,
    }


def all_alike(study: Study) -> dict[str, float]:
    """A world in which no method, model or setting differs, and every bound is broken."""
    return {
        "regret_ms": 1e12 * study.settings.devices,
        "latency_ms": 10.0,
        "error_ms": 1.0,
        "uploads": 1e9,
        "growth": 1.0,
        "bump": 0.0,
    }
