"""What an experiment's fleet consists of, counted out: devices one by one, choices one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cans.live.split import Cutting
from cans.live.splitting import load_model, split
from cans.testbed.run.experiment import DeviceGroup, Experiment


@dataclass(frozen=True)
class DeviceSeat:
    """One device of the fleet, the same under every policy."""

    index: int
    name: str
    group: DeviceGroup


@dataclass(frozen=True)
class ChoiceInfo:
    """One choice of the table: where to cut and how to send, and what that means in numbers."""

    row: int
    point: int
    point_name: str
    codec: str
    bytes: int
    front_macs: int
    back_macs: int

    @property
    def label(self) -> str:
        return self.point_name if self.bytes == 0 else f"{self.point_name}/{self.codec}"


def seats(experiment: Experiment) -> list[DeviceSeat]:
    """Every device, numbered through."""
    found: list[DeviceSeat] = []
    for group in experiment.devices:
        for _ in range(group.count):
            found.append(DeviceSeat(len(found), f"{group.type}-{len(found) + 1}", group))
    return found


def choices(experiment: Experiment, model: str) -> list[ChoiceInfo]:
    """The choices that the server's table will offer."""
    cutting = Cutting(max_points=experiment.max_points)
    made = split(
        load_model(model, cutting), cutting, codecs=experiment.codecs, features=experiment.features
    )
    found = []
    table = made.table
    for row in range(table.choices):
        point: Any = made.points[table.point_of[row]]
        size = table.bytes_of[row]
        front, back = point.front.total_macs, point.back.total_macs
        found.append(
            ChoiceInfo(row, point.index, point.name, table.codec_of[row], size, front, back)
        )
    return found
