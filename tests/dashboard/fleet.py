"""A fleet that tells of itself without running anything: accounts as devices would send them."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from time import time
from typing import Any

import numpy as np

from cans.learning import DeviceIdentity, PartitionTable
from cans.live.server.fleet.happenings import Accounted, Answered, Joined
from cans.live.split import SplitModel
from cans.live.wire.account import Account, PlayedRound
from tests.live.toy import toy

TYPES = ("orin-nano", "rpi5", "xavier-nx", "gateway")
NETWORKS = ("wifi", "lte", "lab")


def model(layers: int = 12) -> SplitModel:
    """A toy of several layers that says what its choices send, in two codecs."""
    steps = np.arange(layers + 1.0)
    table = PartitionTable(
        "camera", [f"block{i}" if i else "input" for i in range(layers)] + ["output"],
        front=np.cumsum(1.0 + np.sin(steps) ** 2)[:, None] - 1.0,
        link=np.column_stack([np.where(steps < layers, np.exp(-steps / 5), 0.0), steps < layers]),
        server=(layers - steps)[:, None],
        bytes_of=[int(600_000 * math.exp(-i / 5)) for i in range(layers)] + [0],
        digest="camera-digest", names={"link": ("bytes", "intercept")},
    )  # fmt: skip
    return replace(toy(table=table), name="camera")


class MadeUpFleet:
    """Devices that join a recorder and tell of inferences."""

    def __init__(self, recorder: Any, split: SplitModel, seed: int = 7) -> None:
        self._recorder = recorder
        self._model = split
        self._random = Random(seed)
        self._numbers: dict[str, int] = {}

    def join(self, name: str, type_: str | None = None, network: str | None = None) -> None:
        place = len(self._numbers)
        identity = DeviceIdentity(
            name, "1", type_ or TYPES[place % 4], network or NETWORKS[place % 3]
        )
        self._numbers[name] = 0
        self._recorder.happenings.add(Joined(time(), identity, self._model.digest))

    def infer(self, name: str, row: int, rounds: int = 1, outcome: int = 0) -> None:
        """So many inferences at one choice, told at once."""
        table, draw = self._model.table, self._random
        place = list(self._numbers).index(name)
        slow = 4.0 + 3.0 * (place % 4)
        mean = [
            slow * (1 + i * 0.9) + (0.0 if i == table.local else 8 + 40 * math.exp(-i / 5) + 12 - i)
            for i in range(table.choices)
        ]
        played = []
        for number in range(rounds):
            front = slow * (1 + row * 0.9) * draw.lognormvariate(0, 0.08)
            there = row != table.local
            link = (8 + 40 * math.exp(-row / 5)) * draw.lognormvariate(0, 0.15) if there else 0.0
            server = (12 - row) * draw.lognormvariate(0, 0.05) if there else 0.0
            wait = max(draw.gauss(0.6, 2.0), 0.0) if there else 0.0
            total = front + link + server + wait + 0.2
            age = (rounds - 1 - number) * 120.0
            played.append(PlayedRound(row, front, wait, link, server, total, age, outcome))
        self._numbers[name] += rounds
        width = tuple(2.0 + 0.15 * each for each in mean)
        why = f"lowest expected latency (expected {mean[row]:.1f} ms, width {width[row]:.1f} ms)"
        account = Account(self._numbers[name], tuple(played), why, tuple(mean), width)
        self._recorder.happenings.add(Accounted(time(), name, account))

    def request(self, name: str, point: int) -> None:
        """A request that the server has answered."""
        self._recorder.happenings.add(
            Answered(time(), name, self._model.digest, point, "float32", 0.4, 7.0)
        )
