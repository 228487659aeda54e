"""A busy moment makes no device look slow; one that is slow is measured again and says so."""

from __future__ import annotations

from typing import Any

import pytest

from cans.errors import RunError
from cans.testbed.run.calibration import RUNS, TURNS, calibrate, large
from cans.testbed.run.experiment import DeviceGroup
from cans.testbed.run.layout import ChoiceInfo, DeviceSeat

CHOICES = [
    ChoiceInfo(row, row, f"p{row}", "uint8", size, 60 * row, 120 - 60 * row)
    for row, size in enumerate((100, 500, 0))
]
SEATS = [DeviceSeat(n, f"rpi5-{n + 1}", DeviceGroup("rpi5", slowdown=4.0)) for n in range(2)]


class MadeUpFleet:
    """Sends everything at 10 Mbps; a slow-down for every turn, of the whole model and of half."""

    def __init__(self, *slowdowns: list[float], fallback: str = "") -> None:
        self.seats = SEATS
        self.turns = [0] * len(slowdowns)
        self._slowdowns = slowdowns
        self.forced: dict[int, int | None] = {}
        self._fallback = fallback

    def force(self, device: int, row: int | None) -> None:
        self.forced[device] = row

    def calibrate(self, device: int, runs: int, point: int | None = None) -> dict[str, float]:
        assert runs == RUNS
        assert point in (None, 1), "half of the work is at point 1"
        slowdown = self._slowdowns[device][self.turns[device]]
        self.turns[device] += point is not None
        return {"slowdown": slowdown, "wall_ms": 40.0}

    def infer(self, device: int) -> dict[str, Any]:
        assert self.forced[device] == 1, "the largest upload is what shows the rate"
        return {"bytes_up": 500, "link_ms": 0.4, "fallback": self._fallback}


def found(fleet: MadeUpFleet) -> list[tuple[float, bool]]:
    calibrated = calibrate(fleet, CHOICES, lambda seat: 10.0)  # type: ignore[arg-type]
    assert fleet.forced == {0: None, 1: None}
    assert all(each.achieved_mbps == pytest.approx(10.0) for each in calibrated)
    return [(each.achieved_slowdown, each.within) for each in calibrated]


def test_one_busy_turn_changes_nothing() -> None:
    fleet = MadeUpFleet([9.0, 4.0, 4.1], [4.0, 4.1, 4.2])
    assert found(fleet) == [(4.1, True), (4.1, True)]
    assert fleet.turns == [TURNS, TURNS]


def test_a_device_that_is_off_is_measured_once_more_and_all_of_it_counts() -> None:
    fleet = MadeUpFleet([6.0, 6.0, 4.0, 4.1, 4.1, 4.1], [6.0] * 6)
    first, second = found(fleet)
    assert first == (4.1, True)
    assert second == (6.0, False)
    assert fleet.turns == [2 * TURNS, 2 * TURNS]


def test_a_rate_is_told_by_what_takes_half_a_second_at_most() -> None:
    assert large(CHOICES, mbps=10.0) == 1
    assert large(CHOICES, mbps=0.002) == 0  # 400 ms, against 2000
    assert large(CHOICES, mbps=0.0001) == 0  # nothing is as quick: the quickest


def test_a_device_that_does_not_reach_its_server_cannot_be_calibrated() -> None:
    fleet = MadeUpFleet([4.0] * 6, [4.0] * 6, fallback="no answer")
    with pytest.raises(RunError, match="rpi5-1: no answer"):
        calibrate(fleet, CHOICES, lambda seat: 10.0)  # type: ignore[arg-type]
