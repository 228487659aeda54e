"""The best fixed choice is found from all devices of a kind, and every run is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from cans.errors import RunError
from cans.testbed.run.experiment import DeviceGroup
from cans.testbed.run.layout import ChoiceInfo, DeviceSeat
from cans.testbed.run.sweep import sweep

CHOICES = [ChoiceInfo(row, row, f"p{row}", "uint8", 1, 0, 0) for row in range(8)]
SLOW, FAST = DeviceGroup("rpi5", slowdown=6.0), DeviceGroup("orin-nano", slowdown=2.0)
SEATS = [DeviceSeat(n, f"d{n}", FAST if n == 2 else SLOW) for n in range(3)]


class MadeUpFleet:
    """Row 3 is best for slow devices, row 6 for fast ones; one slow device is disturbed."""

    def __init__(self) -> None:
        self.seats = SEATS
        self.forced: dict[int, int | None] = {}

    def force(self, device: int, row: int | None) -> None:
        self.forced[device] = row

    def infer(self, device: int) -> dict[str, Any]:
        row = self.forced[device]
        assert row is not None
        best = 6 if SEATS[device].group is FAST else 3
        disturbed = 30.0 if device == 1 and row == 3 else 0.0
        return {"waited_ms": 50.0 + 10 * abs(row - best) + disturbed, "fallback": ""}


def test_alike_devices_have_one_best_choice() -> None:
    recorded: list[str] = []
    fleet: Any = MadeUpFleet()
    found = sweep(fleet, CHOICES, 2, lambda answer, seat: recorded.append(seat.name))
    assert found.best == {0: found.best[1], 1: found.best[1], 2: 6}
    assert found.mean_ms[2][6] == 50.0
    assert set(found.mean_ms[0]) == set(range(8))
    assert fleet.forced == {0: None, 1: None, 2: None}
    # everything twice on one of a kind; five finalists, twelve times, on all of the kind
    assert len(recorded) == 2 * (8 * 2) + 2 * (5 * 12)


def test_a_choice_that_cannot_be_measured_ends_the_sweep() -> None:
    fleet: Any = MadeUpFleet()
    fleet.infer = lambda device: {"waited_ms": 1.0, "fallback": "no answer"}
    with pytest.raises(RunError, match="d0: no answer"):
        sweep(fleet, CHOICES, 1, lambda *_: None)
