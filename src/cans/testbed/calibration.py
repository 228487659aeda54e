"""Asked and achieved: how slow the devices and how fast the links really are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from cans.errors import RunError
from cans.testbed.fleet import Fleet
from cans.testbed.layout import ChoiceInfo

TOLERANCE = 0.15
RUNS = 5


@dataclass(frozen=True)
class Calibration:
    """One device, measured before the first round."""

    device: str
    type: str
    asked_slowdown: float
    achieved_slowdown: float
    asked_mbps: float
    achieved_mbps: float
    local_ms: float

    @property
    def within(self) -> bool:
        ratios = (
            self.achieved_slowdown / self.asked_slowdown,
            self.achieved_mbps / self.asked_mbps,
        )
        return all(1 - TOLERANCE <= ratio <= 1 + TOLERANCE for ratio in ratios)

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "within_15_percent": self.within}


def calibrate(
    fleet: Fleet, choices: Sequence[ChoiceInfo], mbps: Callable[[int], float]
) -> list[Calibration]:
    """Run the whole model, and send what is largest, on every device in turn."""
    largest = max(choices, key=lambda each: each.bytes)
    found = []
    for seat in fleet.seats:
        answer = fleet.devices[seat.index].ask("calibrate", runs=RUNS)
        fleet.force(seat.index, largest.row)
        rates = []
        for _ in range(RUNS):
            sent = fleet.infer(seat.index)
            if "error" in sent or sent["fallback"]:
                raise RunError(f"{seat.name}: {sent.get('error') or sent['fallback']}")
            rates.append(sent["bytes_up"] * 8e-3 / sent["link_ms"])
        fleet.force(seat.index, None)
        found.append(
            Calibration(
                seat.name, seat.group.type, seat.group.slowdown, answer["slowdown"],
                mbps(seat.index), median(rates), answer["wall_ms"],
            )
        )  # fmt: skip
    return found
