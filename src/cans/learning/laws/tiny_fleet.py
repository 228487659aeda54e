"""`Case` and `TinyFleet`: what laws are tried on, all raw observations kept beside the sums.

The draws come in as a function, so that nothing here is random and any failure can be replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.learning.choice import Choice, Context, Latencies
from cans.learning.device.learner import DeviceLearner
from cans.learning.device.part import offline_row
from cans.learning.edge import EdgeAggregator
from cans.learning.messages import DeviceIdentity, PoolKey, Upload
from cans.learning.policies import Choose, Hyperparameters, Part, Policy
from cans.learning.table import SEGMENTS, PartitionTable

Draw = Callable[[], float]
"""Uniform in [0, 1)."""

Observed = list[tuple[Array, float]]
"""Raw observations (x, y), as the paper's sums have them."""


@dataclass(frozen=True)
class Case:
    """A policy, and the table, numbers and chance to try it with."""

    policy: Policy
    table: PartitionTable
    hyperparameters: Hyperparameters
    draw: Draw

    def below(self, limit: int) -> int:
        return int(self.draw() * limit)

    def milliseconds(self) -> float:
        """A latency; now and then below zero, as the paper's Gaussian noise has it."""
        return 110.0 * self.draw() - 10.0

    def shuffled(self, items: Sequence[Upload]) -> list[Upload]:
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in items]

    def learner(self, device: int = 0) -> DeviceLearner:
        """Device number `device`: two types, two networks, all in one fleet."""
        identity = DeviceIdentity(
            f"device-{device}", type=f"type-{device % 2}", network=f"network-{device // 2 % 2}"
        )
        return DeviceLearner(
            self.table, self.policy, identity, self.hyperparameters, known=self.known()
        )

    @property
    def ridge(self) -> float:
        return self.policy.ridge_of(self.hyperparameters)

    @property
    def plain(self) -> bool:
        """Whether sums are of raw observations, all of full weight."""
        return not self.policy.physical and not any(part.watched for part in self.policy.parts)

    def edge(self) -> EdgeAggregator:
        return EdgeAggregator(self.policy, self.hyperparameters)

    def known(self) -> Array | None:
        """What a policy is told beforehand: here, one millisecond per unit of every feature."""
        if not self.policy.knows or self.policy.truth:
            return None
        total: Array = self.table.columns(self.policy.knows).sum(axis=1)
        return total

    def context(self) -> Context:
        width = max((self.rows(part).shape[1] for part in self.policy.parts), default=0)
        truth = self.table.columns(SEGMENTS).sum(axis=1) if self.policy.truth else None
        return Context(
            uniform=self.draw(),
            normals=np.array([6.0 * self.draw() - 3.0 for _ in range(width)]),
            key_frame=self.draw() < 0.1,
            known=truth,
        )

    def offline(self) -> list[tuple[int, float]]:
        runs = range(self.hyperparameters.offline_runs)
        return [(1 + self.below(self.table.choices - 1), self.milliseconds()) for _ in runs]

    def rows(self, part: Part) -> Array:
        return self.table.columns(part.explains)

    def radius(self) -> float:
        sampled = self.policy.choose is Choose.SAMPLED
        return float(self.hyperparameters.sampling_ms if sampled else self.hyperparameters.beta_ms)


def random_table(
    draw: Draw, choices: int = 6, widths: tuple[int, int, int] = (1, 1, 1)
) -> PartitionTable:
    """A table of this shape: nothing runs in front at the first choice, or behind at the last."""
    columns = {
        segment: np.array([[draw() for _ in range(width)] for _ in range(choices)])
        for segment, width in zip(SEGMENTS, widths, strict=True)
    }
    columns["front"][0] = 0.0
    columns["link"][-1] = columns["server"][-1] = 0.0
    points = [f"point-{choice}" for choice in range(choices)]
    return PartitionTable("random", points, columns["front"], columns["link"], columns["server"])


@dataclass
class Round:
    """What happened in one round."""

    device: int
    choice: Choice
    latencies: Latencies
    uploads: tuple[Upload, ...]


@dataclass
class TinyFleet:
    """Devices and their edge server, exchanging at once; beside each holder of statistics stands
    the list of raw observations that it must be the sum of."""

    case: Case
    devices: int = 3
    learners: list[DeviceLearner] = field(default_factory=list)
    edge: EdgeAggregator = field(init=False)
    pooled: dict[PoolKey, Observed] = field(default_factory=lambda: defaultdict(list))
    synced: dict[tuple[int, str], Observed] = field(default_factory=lambda: defaultdict(list))
    local: dict[tuple[int, str], Observed] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.edge = self.case.edge()
        for device in range(self.devices):
            self.learners.append(self.case.learner(device))
            self.join(device)

    def join(self, device: int) -> None:
        offline = self.case.offline()
        for part in self.case.policy.parts:
            if part.warm:
                self.local[device, part.name] += offline_observations(part, self.case, offline)
        for upload in self.learners[device].join(offline):
            self.exchange(device, upload)

    def round(self, device: int) -> Round:
        """Select, measure, observe; nothing is exchanged yet."""
        learner = self.learners[device]
        choice = learner.select(self.case.context())
        latencies = Latencies(*(self.case.milliseconds() for _ in SEGMENTS))
        uploads = learner.observe(choice, latencies)
        for name, x, y in observations(self.case, choice.row, latencies):
            self.local[device, name].append((x, y))
        return Round(device, choice, latencies, uploads)

    def exchange(self, device: int, upload: Upload) -> None:
        """The upload arrives, and so does the answer."""
        part = upload.key.part
        self.pooled[upload.key] += self.local[device, part]
        self.local[device, part] = []
        self.synced[device, part] = list(self.pooled[upload.key])
        self.learners[device].adopt(self.edge.merge(upload))

    def play(self, rounds: int) -> list[Round]:
        played = []
        for _ in range(rounds):
            played.append(self.round(self.case.below(self.devices)))
            for upload in played[-1].uploads:
                self.exchange(played[-1].device, upload)
        return played

    def estimated_from(self, device: int, part: Part) -> Observed:
        """The observations that a device's present estimate of a part rests on."""
        known = self.synced[device, part.name]
        if part.shared and not part.uses_local:
            return known
        return known + self.local[device, part.name]


def offline_observations(part: Part, case: Case, offline: Sequence[tuple[int, float]]) -> Observed:
    width = case.rows(part).shape[1]
    return [(offline_row(part, case.table, choice, width), ms) for choice, ms in offline]


def observations(case: Case, choice: int, latencies: Latencies) -> list[tuple[str, Array, float]]:
    """(part, x, y) of everything that one round teaches: nothing where x = 0."""
    found = []
    for part in case.policy.parts:
        x, y = case.rows(part)[choice], latencies.of(part.explains)
        if y is not None and x.any():
            found.append((part.name, x, y))
    return found


def gram(observed: Observed, dimension: int) -> Array:
    """Σ x x', the slow way."""
    total = np.zeros((dimension, dimension))
    for x, _ in observed:
        total += np.outer(x, x)
    return total
