"""Numbers of a report, from rows made by hand."""

from __future__ import annotations

import pytest

from cans.testbed.report.records import FIXED, Row
from cans.testbed.report.summary import summarise
from cans.testbed.run.calibration import Calibration
from cans.testbed.run.experiment import Change, DeviceGroup, Experiment, Link, Outage, PolicyChoice
from cans.testbed.run.experiment_run import Outcome


def row(policy: str, round_: int, ms: float, error: str = "", point: int = 3) -> Row:
    return {
        "policy": policy, "round": round_, "waited_ms": ms, "error": error, "fallback": "",
        "device": "rpi5-1", "point": point, "point_name": "fc", "codec": "uint8",
        "front_ms": 30.0, "link_ms": 5.0, "server_ms": None, "energy_mj": 1.0,
    }  # fmt: skip


def outcome(rows: list[Row]) -> Outcome:
    made = Outcome("m", [])
    made.calibration = [Calibration("rpi5-1", "rpi5", 4.0, 4.2, 10.0, 9.0, 50.0)]
    made.rows = rows
    return made


def experiment(**more: object) -> Experiment:
    return Experiment(
        "e", (DeviceGroup("rpi5"),), (Link("wifi", 40.0),),
        (PolicyChoice("cans"), PolicyChoice("linucb")), rounds=120, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_gap_closed_is_between_linucb_and_the_best_fixed_choice() -> None:
    rows = [row(policy, n, ms) for n in range(120) for policy, ms in
            ((FIXED, 40.0), ("cans", 44.0), ("linucb", 60.0))]  # fmt: skip
    found = summarise(experiment(), outcome(rows))
    assert list(found["gap_closed"]["cans"]) == ["30", "100"]
    assert found["gap_closed"]["cans"]["100"]["gap_closed"] == pytest.approx(0.8)
    assert found["gap_closed"]["cans"]["100"]["percent_below_linucb"] == pytest.approx(26.67, 0.01)


def test_recovery_is_the_first_window_near_the_new_best() -> None:
    rows = []
    for n in range(120):
        late = 40 <= n < 55
        rows += [row(FIXED, n, 40.0), row("cans", n, 80.0 if late else 41.0), row("linucb", n, 90)]
    changed = experiment(changes=(Change(40, "wifi", 5.0),))
    found = summarise(changed, outcome(rows))["after_change"]["40"]
    assert found["cans"]["back_within_10_percent_after"] == 15
    assert found["linucb"]["back_within_10_percent_after"] is None


def test_an_outage_counts_answers_and_the_slowest() -> None:
    rows = [row("cans", n, 60.0 if n == 11 else 50.0) for n in range(20)]
    rows += [row("linucb", n, 50.0, "no answer" if n == 10 else "") for n in range(20)]
    found = summarise(experiment(outages=(Outage(10, 5),)), outcome(rows))["outage"]
    assert found["cans"]["inferences"] == found["cans"]["answered"] == 5
    assert found["cans"]["slowest_over_local"] == pytest.approx(1.2)
    assert found["linucb"]["answered"] == 4


def test_calibration_says_when_it_is_off() -> None:
    assert Calibration("d", "t", 4.0, 4.5, 10.0, 9.0, 1.0).within
    assert not Calibration("d", "t", 4.0, 4.7, 10.0, 9.0, 1.0).within
    assert not Calibration("d", "t", 4.0, 4.0, 10.0, 8.0, 1.0).within


def test_excess_is_split_by_what_was_chosen() -> None:
    rows = [row(FIXED, n, 40.0) for n in range(120)]
    rows += [row("linucb", n, 60.0) for n in range(120)]
    rows += [row("cans", n, 90.0 if n < 5 else 41.0, point=0 if n < 5 else 3) for n in range(120)]
    found = summarise(experiment(), outcome(rows))["excess"]["cans"]
    assert [(each["from_round"], each["to_round"]) for each in found] == [
        (0, 10), (10, 30), (30, 100), (100, 120)
    ]  # fmt: skip
    first, second, *_ = found
    assert first["excess_ms"] == pytest.approx(25.5)
    assert first["other_choice_ms"] == pytest.approx(25.0)
    assert first["same_choice_ms"] == pytest.approx(0.5)
    assert first["other_choices"] == 0.5
    assert second["other_choices"] == 0.0
    assert second["slower_with_same_choice"] == {
        "total_ms": 1.0, "front_ms": 0.0, "link_ms": 0.0, "server_ms": 0.0, "rest_ms": 1.0
    }  # fmt: skip
