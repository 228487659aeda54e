"""Asked and achieved: how slow the devices and how fast the links really are.

Devices take turns several times, so that a busy moment of the machine disturbs a few measurements
of each and not all of one; what counts is the median. A device that is off all the same is measured
once more, and then all of its measurements count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from cans.errors import RunError
from cans.testbed.run.fleet import ProcessFleet
from cans.testbed.run.layout import ChoiceInfo, DeviceSeat

TOLERANCE = 0.15
TURNS = 3
RUNS = 5  # of one turn
LONGEST_MS = 500.0  # of an upload


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

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "within_15_percent": self.within}


class _Measurements:
    """Of one device, from all of its turns."""

    def __init__(self) -> None:
        self.slowdowns: list[float] = []
        self.local_ms: list[float] = []
        self.mbps: list[float] = []


def calibrate(
    fleet: ProcessFleet, choices: Sequence[ChoiceInfo], mbps: Callable[[DeviceSeat], float]
) -> list[Calibration]:
    """Run the whole model and half of it, and send something large, on every device."""
    work = choices[-1].front_macs
    half = min(choices, key=lambda each: abs(2 * each.front_macs - work)).point
    measured: dict[int, _Measurements] = defaultdict(_Measurements)

    def result(seat: DeviceSeat) -> Calibration:
        found = measured[seat.index]
        return Calibration(
            seat.name, seat.group.type, seat.group.slowdown, median(found.slowdowns),
            mbps(seat), median(found.mbps), median(found.local_ms),
        )  # fmt: skip

    def take_turns(seats: Sequence[DeviceSeat]) -> None:
        for seat in [*seats] * TURNS:
            _measure(fleet, seat, half, large(choices, mbps(seat)), measured[seat.index])

    take_turns(fleet.seats)
    take_turns([seat for seat in fleet.seats if not result(seat).within])
    return [result(seat) for seat in fleet.seats]


def large(choices: Sequence[ChoiceInfo], mbps: float) -> int:
    """The choice that sends most within half a second: enough to tell a rate, and no more."""
    sent = sorted((each.bytes, each.row) for each in choices if each.bytes > 0)
    return max([each for each in sent if each[0] * 8e-3 / mbps <= LONGEST_MS] or sent[:1])[1]


def _measure(
    fleet: ProcessFleet, seat: DeviceSeat, half: int, large: int, found: _Measurements
) -> None:
    whole = fleet.calibrate(seat.index, RUNS)
    part = fleet.calibrate(seat.index, RUNS, half)
    found.slowdowns += [whole["slowdown"], part["slowdown"]]
    found.local_ms.append(whole["wall_ms"])
    fleet.force(seat.index, large)
    found.mbps += [_rate(fleet, seat) for _ in range(RUNS)]
    fleet.force(seat.index, None)


def _rate(fleet: ProcessFleet, seat: DeviceSeat) -> float:
    sent = fleet.infer(seat.index)
    if "error" in sent or sent["fallback"]:
        raise RunError(f"{seat.name}: {sent.get('error') or sent['fallback']}")
    return float(sent["bytes_up"] * 8e-3 / sent["link_ms"])
