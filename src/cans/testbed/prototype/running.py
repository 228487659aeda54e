"""Runs the paper's prototype and its ablation, and says what that means for its claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from cans.simulation.reproduce.prototype import Prototype
from cans.testbed.prototype.claims import judgements
from cans.testbed.prototype.measured import Measured, measured
from cans.testbed.prototype.section import section
from cans.testbed.report.report import write_report
from cans.testbed.run.experiment_run import run_model
from cans.testbed.run.interruption import stopped_by_signals
from cans.testbed.run.reading import read_experiment

QUICK_ROUNDS = 12


def measure_prototype(folder: Path, quick: bool) -> Prototype:
    """Run both experiments; every inference is in `folder` afterwards."""
    with stopped_by_signals():
        prototype, ablation = (
            _run(name, folder / name, quick) for name in ("prototype", "ablation")
        )
    return Prototype(judgements(prototype, ablation), section(prototype, ablation))


def _run(name: str, folder: Path, quick: bool) -> Measured:
    experiment = read_experiment(name)
    if quick:
        experiment = replace(experiment, rounds=min(QUICK_ROUNDS, experiment.rounds))
    outcomes = []
    for model in experiment.models:

        def say(text: str, model: str = model) -> None:
            typer.echo(f"{name}, {model}: {text}", err=True)

        outcomes.append(run_model(experiment, model, say))
    write_report(experiment, outcomes[0].network, outcomes, folder)
    return measured(experiment, outcomes)
