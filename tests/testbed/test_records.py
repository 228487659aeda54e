"""The tidy file has a row per inference with all that was asked for, and is a world to simulate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cans.cli import app
from cans.testbed.report.records import Row, row_of, write_rows, write_trace
from cans.testbed.run.experiment import DeviceGroup
from cans.testbed.run.layout import ChoiceInfo, DeviceSeat

SEAT = DeviceSeat(0, "rpi5-1", DeviceGroup("rpi5", watts=7.0, radio_watts=2.0))
CHOICES = [
    ChoiceInfo(0, 0, "input", "uint8", 150_000, 0, 300_000_000),
    ChoiceInfo(1, 3, "block2", "uint8", 20_000, 100_000_000, 200_000_000),
    ChoiceInfo(2, 5, "fc", "float32", 0, 300_000_000, 0),
]


def row(choice: ChoiceInfo, round_: int, ms: tuple[float, float | None, float | None]) -> Row:
    """As a device would report it."""
    front, link, server = ms
    answer = {
        "time": 1.0, "point": choice.point, "point_name": choice.point_name, "codec": choice.codec,
        "front_ms": front, "link_ms": link, "server_ms": server, "queue_ms": 0.0, "bytes_up": 10,
        "total_ms": sum(each or 0.0 for each in ms), "waited_ms": 50.0, "predicted_ms": 49.0,
        "answered_by": "device" if link is None else "server", "fallback": "", "learned": True,
        "why": "lowest expected latency",
    }  # fmt: skip
    return row_of(answer, SEAT, model="m", policy="cans", round_=round_, mbps=12.0)


ROWS = [
    row(CHOICES[0], 0, (0.0, 100.0, 10.0)),
    row(CHOICES[1], 1, (20.0, 14.0, 7.0)),
    row(CHOICES[2], 2, (60.0, None, None)),
]


def test_every_inference_is_one_tidy_row(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows == ROWS
    middle = rows[1]
    wanted = {
        "device": "rpi5-1", "device_type": "rpi5", "policy": "cans", "round": 1, "point": 3,
        "point_name": "block2", "codec": "uint8", "front_ms": 20.0, "link_ms": 14.0,
        "server_ms": 7.0, "waited_ms": 50.0, "predicted_ms": 49.0, "mbps": 12.0, "error": "",
    }  # fmt: skip
    assert {key: middle[key] for key in wanted} == wanted
    assert middle["energy_mj"] == pytest.approx(20.0 * 7 + 14.0 * 2)
    assert rows[2]["energy_mj"] == pytest.approx(60.0 * 7)


def test_an_unanswered_inference_is_a_row_too() -> None:
    lost = row_of({"error": "too late"}, SEAT, model="m", policy="cans", round_=7, mbps=12.0)
    assert (lost["error"], lost["round"], lost["point"], lost["energy_mj"]) == (
        "too late",
        7,
        None,
        0,
    )


def test_a_recorded_run_is_a_world_for_the_simulator(tmp_path: Path) -> None:
    lost = row_of({"error": "too late"}, SEAT, model="m", policy="cans", round_=7, mbps=12.0)
    fallen = {**ROWS[0], "fallback": "no answer", "link_ms": None}
    trace = tmp_path / "trace-m.csv"
    assert write_trace(trace, [*ROWS, *ROWS, lost, fallen], CHOICES) == 6
    words = ["simulate", "--world", "trace", "--trace", str(trace), "--policy", "cans"]
    words += ["--devices", "2", "--rounds", "40", "--seeds", "1", "--engine", "reference"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.exception
    (run,) = json.loads(done.stdout)["runs"]
    assert run["picks"]["1"] > 20  # 41 ms, against 110 and 60
