"""A trace of everything: each choice of each kind of device, measured several times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cans.testbed.report.records import write_trace
from cans.testbed.run.calibration import calibrate
from cans.testbed.run.experiment import Experiment
from cans.testbed.run.experiment_run import Say, Testbed
from cans.testbed.run.layout import DeviceSeat
from cans.testbed.run.network import goodput
from cans.testbed.run.sweep import kinds, tried


def measure_trace(experiment: Experiment, model: str, runs: int, path: Path, say: Say) -> int:
    """Write the trace of one model; returns how many inferences it holds."""
    alone = replace(experiment, changes=(), outages=())
    with Testbed(alone, model, say, only_forced=True) as testbed:
        rates, loss = alone.rates(0), alone.loss()

        def mbps(seat: DeviceSeat) -> float:
            return goodput(rates[seat.group.network], loss[seat.group.network])

        def record(answer: dict[str, Any], seat: DeviceSeat) -> None:
            testbed.record_sweep(answer, seat, phase=0)

        for each in calibrate(testbed.reference, testbed.outcome.choices, mbps):
            say(
                f"{each.device}: {each.achieved_slowdown:.2f}x slower (asked "
                f"{each.asked_slowdown:g}), {each.achieved_mbps:.1f} Mbps (asked "
                f"{each.asked_mbps:g})"
            )
        rows = [each.row for each in testbed.outcome.choices]
        for alike in kinds(testbed.seats):
            say(f"{alike[0].name}: {len(rows)} choices, {runs} runs each")
            tried(testbed.reference, alike[:1], rows, runs, record)
        return write_trace(path, testbed.outcome.rows, testbed.outcome.choices)
