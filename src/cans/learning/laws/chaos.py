"""A fleet on a network that loses, repeats and reorders messages, and the exact sums beside it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from cans.learning.arithmetic.arrays import Array
from cans.learning.choice import Latencies
from cans.learning.device.learner import DeviceLearner
from cans.learning.edge import EdgeAggregator, PoolContents, Received
from cans.learning.laws.tiny_fleet import Case, observations, offline_observations
from cans.learning.messages import Download, PoolKey, Upload
from cans.learning.statistics import SufficientStatistics
from cans.learning.table import SEGMENTS


@dataclass
class Chaos:
    """A fleet whose messages are lost, repeated, delayed and reordered, whose devices restart and
    whose pools are reset; and the plain sum of everything that was ever observed."""

    case: Case
    devices: int = 3
    learners: list[DeviceLearner] = field(default_factory=list)
    edge: EdgeAggregator = field(init=False)
    uploads: list[tuple[int, Upload]] = field(default_factory=list)
    downloads: list[tuple[int, Download]] = field(default_factory=list)
    observed: dict[PoolKey, SufficientStatistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.edge = self.case.edge()
        for device in range(self.devices):
            self.learners.append(self.case.learner(device))
            offline = self.case.offline()
            for part in self.case.policy.parts:
                if part.warm:
                    for x, y in offline_observations(part, self.case, offline):
                        self.note(device, part.name, x, y)
            self.send(device, self.learners[device].join(offline))

    def note(self, device: int, part: str, x: Array, y: float) -> None:
        key = next(r.key for r in self.learners[device].records() if r.key.part == part)
        one = SufficientStatistics.of(x, y)
        self.observed[key] = self.observed[key] + one if key in self.observed else one

    def send(self, device: int, uploads: tuple[Upload, ...]) -> None:
        self.uploads += [(device, upload) for upload in uploads]

    def step(self) -> None:
        """Something happens."""
        device, chance = self.case.below(self.devices), self.case.draw()
        if chance < 0.55:
            self.infer(device)
        elif chance < 0.70:
            self.deliver_upload()
        elif chance < 0.82:
            self.deliver_download()
        elif chance < 0.87:
            self.lose()
        elif chance < 0.92:
            self.restart(device)
        elif chance < 0.96:
            self.send(device, self.learners[device].flush())
        elif self.edge.pools:
            keys = sorted(self.edge.pools)
            self.edge.reset(keys[self.case.below(len(keys))])

    def infer(self, device: int) -> None:
        choice = self.learners[device].select(self.case.context())
        latencies = Latencies(*(self.case.milliseconds() for _ in SEGMENTS))
        self.send(device, self.learners[device].observe(choice, latencies))
        for part, x, y in observations(self.case, choice.row, latencies):
            self.note(device, part, x, y)

    def deliver_upload(self) -> None:
        """In any order; one in three arrives again later."""
        if self.uploads:
            device, upload = self.uploads.pop(self.case.below(len(self.uploads)))
            self.downloads.append((device, self.edge.merge(upload)))
            if self.case.draw() < 1 / 3:
                self.uploads.append((device, upload))

    def deliver_download(self) -> None:
        if self.downloads:
            device, download = self.downloads.pop(self.case.below(len(self.downloads)))
            self.learners[device].adopt(download)
            if self.case.draw() < 1 / 3:
                self.downloads.append((device, download))

    def lose(self) -> None:
        if self.uploads and self.case.draw() < 0.5:
            self.uploads.pop(self.case.below(len(self.uploads)))
        elif self.downloads:
            self.downloads.pop(self.case.below(len(self.downloads)))

    def restart(self, device: int) -> None:
        kept = self.learners[device].records()
        self.learners[device] = self.case.learner(device)
        self.learners[device].restore(kept)
        self.send(device, self.learners[device].pending())

    def accounted(self) -> dict[PoolKey, SufficientStatistics]:
        """Where everything is now: pools, retired epochs, buffers; what is both on its way and
        already merged counts once."""
        found: dict[PoolKey, list[SufficientStatistics]] = defaultdict(list)
        for key, pool in self.edge.pools.items():
            found[key].append(everything(pool))
        for learner in self.learners:
            who = learner.identity
            for record in learner.records():
                received = self.edge.received.get(
                    (record.key, who.device, who.incarnation), Received()
                )
                local = record.local
                if record.sent is not None and record.sequence - 1 in received:
                    local = local - record.sent
                found[record.key] += [local, record.retired]
        return {key: _sum(each) for key, each in found.items()}


def _sum(statistics: list[SufficientStatistics]) -> SufficientStatistics:
    total = statistics[0]
    for each in statistics[1:]:
        total = total + each
    return total


def everything(pool: PoolContents) -> SufficientStatistics:
    """All that a pool ever took in."""
    return pool.statistics if pool.retired is None else pool.statistics + pool.retired
