"""Devices at their own pace on a server that is too small for all of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

from cans.errors import InputError
from cans.live.stretching import stretch
from cans.testbed.report.records import FIXED, SWEEP, Row
from cans.testbed.report.summary import summarise
from cans.testbed.run.contention import FreeRunning, jointly_best
from cans.testbed.run.experiment import DeviceGroup, Experiment, Link, Outage, PolicyChoice
from cans.testbed.run.experiment_run import Outcome
from cans.testbed.run.layout import ChoiceInfo, seats
from cans.testbed.run.reading import read_experiment
from tests.live.toy import example, toy

CHOICES = [
    ChoiceInfo(0, 0, "input", "uint8", 1000, 0, 100),
    ChoiceInfo(1, 1, "conv", "uint8", 500, 50, 50),
    ChoiceInfo(2, 2, "fc", "float32", 0, 100, 0),
]


def experiment(**more: Any) -> Experiment:
    given = {"mode": "free-running", "rounds": 40, "pause_ms": 10.0, **more}
    groups = (DeviceGroup("rpi5", 3), DeviceGroup("orin", 2, 1.0))
    policies = (PolicyChoice("cans"), PolicyChoice("linucb"))
    return Experiment("e", groups, (Link("wifi", 40.0),), policies, **given)


def row(device: str, policy: str, round_: int, ms: float, **more: Any) -> Row:
    return {
        "device": device, "device_type": device.split("-")[0], "network": "wifi", "policy": policy,
        "round": round_, "waited_ms": ms, "error": "", "fallback": "", "point": 0,
        "point_name": "input", "codec": "uint8", "front_ms": 1.0, "link_ms": 5.0,
        "server_ms": 10.0, "queue_ms": 2.0, "answered_by": "server", "energy_mj": 1.0, **more,
    }  # fmt: skip


def swept(device: str, times: list[tuple[float, float]]) -> list[Row]:
    """Of every choice: total and server milliseconds, alone on the server."""
    rows = []
    for choice, (total, server) in zip(CHOICES, times, strict=True):
        where = {"point": choice.point, "codec": choice.codec}
        rows += [row(device, SWEEP, 0, total, server_ms=server or None,
                     queue_ms=0.0 if server else None, **where)] * 2  # fmt: skip
    return rows


@pytest.mark.parametrize(("pause_ms", "offloads"), [(1e5, 5), (0.0, 1)])
def test_the_joint_assignment_gives_the_server_to_as_many_as_it_serves(
    pause_ms: float, offloads: int
) -> None:
    made = experiment(pause_ms=pause_ms)
    rows = swept("rpi5", [(110.0, 100.0), (200.0, 90.0), (300.0, 0.0)])
    rows += swept("orin", [(110.0, 100.0), (200.0, 90.0), (112.0, 0.0)])
    best = jointly_best(made, seats(made), CHOICES, rows)
    assert list(best) == [0, 1, 2, 3, 4]
    remote = [device for device, choice in best.items() if choice != 2]
    assert len(remote) == offloads or (pause_ms == 0.0 and 1 <= len(remote) <= 3)
    assert remote[0] < 3, "those to whom it is worth most"
    if pause_ms == 0.0:
        assert all(best[device] == 2 for device in (3, 4))


class FakeFleet:
    """Device 0 is slow; who runs beside whom is counted."""

    def __init__(self, made: Experiment) -> None:
        self.seats = seats(made)
        self.lock = threading.Lock()
        self.inside: set[int] = set()
        self.most = 0

    def infer(self, device: int) -> dict[str, Any]:
        with self.lock:
            assert device not in self.inside, "one inference at a time"
            self.inside.add(device)
            self.most = max(self.most, len(self.inside))
        time.sleep(0.02 if device == 0 else 0.002)
        with self.lock:
            self.inside.remove(device)
        return {"waited_ms": 1.0}


def test_nobody_stops_before_the_slowest_has_made_its_inferences() -> None:
    made = experiment(pause_ms=1.0)
    fleet = FakeFleet(made)
    playing = FreeRunning(made, fleet)  # type: ignore[arg-type]
    counts: Counter[int] = Counter()
    rounds: dict[int, list[int]] = {each.index: [] for each in fleet.seats}

    def record(_: dict[str, Any], seat: Any, round_: int) -> None:
        counts[seat.index] += 1
        rounds[seat.index].append(round_)

    playing.play(3, record)
    playing.play(3, record)
    assert min(counts.values()) >= 6
    assert all(each == list(range(len(each))) for each in rounds.values()), "rounds go on"
    assert fleet.most > 1, "they run beside each other"


def test_a_report_of_a_crowd() -> None:
    made = experiment()
    rows = []
    for n in range(40):
        for device in ("rpi5-1", "orin-4"):
            rows += [row(device, FIXED, n, 100.0), row(device, "linucb", n, 150.0)]
            rows += [row(device, "cans", n, 120.0 if n < 30 else 105.0)]
    rows += [row("orin-4", "cans", n, 105.0) for n in range(40, 400)]  # it is quicker
    rows[2]["fallback"] = (
        "the server did not answer as quickly as it used to; this device was first"
    )
    rows[5]["fallback"] = "16 requests are waiting or running; answer locally"
    outcome = Outcome("m", CHOICES)
    outcome.rows = rows
    found = summarise(made, outcome)["contention"]["cans"]
    assert found["early_over_linucb"] == pytest.approx(0.8)
    assert found["later_over_joint"] == pytest.approx(1.05), "devices count alike"
    assert (found["device_was_first"], found["refused"], found["not_answered"]) == (1, 1, 0)


def test_what_a_free_run_cannot_have() -> None:
    with pytest.raises(InputError, match="no rounds"):
        experiment(outages=(Outage(3, 2),))
    assert read_experiment("contention").mode == "free-running"


def test_a_stretched_model_takes_longer_and_answers_alike() -> None:
    model = toy(layers=2)
    stretch(model, 3.0)
    hook = model.executor.on_block
    assert hook is not None
    start = time.perf_counter()
    hook("block", 0.01, 0.01)
    assert time.perf_counter() - start >= 0.02
    hook("block", 0.01, 9.0)  # the machine was busy: it is late already
    outputs = model.executor.run_front(2, example()).outputs
    np.testing.assert_allclose(outputs["y"], example()["t0"] + 2, rtol=1e-6)
    with pytest.raises(InputError, match="--slowdown"):
        stretch(model, 0.5)
