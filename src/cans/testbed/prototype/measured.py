"""What the runs gave: latencies by model, device and policy, in the order of rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cans.errors import RunError
from cans.learning.arithmetic.arrays import Array
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES
from cans.testbed.report.records import SWEEP, Row, latency_ms
from cans.testbed.run.calibration import Calibration
from cans.testbed.run.experiment import Experiment
from cans.testbed.run.experiment_run import Outcome

DEVICE_TITLES = {"xavier-nx": "Xavier NX", "orin-nano": "Orin Nano"}


@dataclass(frozen=True, order=True)
class Place:
    """Where two policies can be compared: one model on one type of device."""

    model: str  # the backbone's name, whatever the size of its pictures
    device: str

    @property
    def title(self) -> str:
        return f"{MODEL_TITLES[self.model]} on {DEVICE_TITLES.get(self.device, self.device)}"


@dataclass(frozen=True, eq=False)
class Measured:
    """One experiment: (rounds,) latencies in ms of every policy at every place."""

    experiment: Experiment
    network: str
    latencies: Mapping[tuple[Place, str], Array]
    calibration: Sequence[Calibration]  # of all models

    @property
    def devices(self) -> list[str]:
        return list(dict.fromkeys(group.type for group in self.experiment.devices))

    @property
    def policies(self) -> list[str]:
        return list(dict.fromkeys(policy for _, policy in self.latencies))

    def of(self, place: Place, policy: str) -> Array:
        return self.latencies[place, policy]

    def places(self) -> Iterator[Place]:
        """Device by device, and on each the backbones in the paper's order."""
        for device in self.devices:
            for model in MODEL_TITLES:
                yield Place(model, device)


def measured(experiment: Experiment, outcomes: Sequence[Outcome]) -> Measured:
    """The latencies that callers waited for; the sweep is not part of the rounds."""
    by_round: dict[tuple[Place, str], dict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for outcome in outcomes:
        for row in outcome.rows:
            if row["policy"] != SWEEP:
                place = Place(backbone(outcome.model), row["device_type"])
                by_round[place, row["policy"]][row["round"]].append(_waited(row))
    latencies = {
        key: np.array([np.mean(rounds[each]) for each in sorted(rounds)])
        for key, rounds in by_round.items()
    }
    calibration = [each for outcome in outcomes for each in outcome.calibration]
    return Measured(experiment, outcomes[0].network, latencies, calibration)


def backbone(model: str) -> str:
    """The paper's name of a model: without the size of its pictures."""
    name = model.partition("-")[0]
    if name not in MODEL_TITLES:
        raise RunError(f"{model} is none of the paper's models: {', '.join(MODEL_TITLES)}")
    return name


def _waited(row: Row) -> float:
    if row["error"]:
        raise RunError(f"{row['device']} did not answer in round {row['round']}: {row['error']}")
    return latency_ms(row)
