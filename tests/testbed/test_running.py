"""A small experiment end to end, and nothing left behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cans.simulation.run import simulate
from cans.simulation.worlds.trace_file import read_trace
from tests.testbed.leftovers import descendants, folders, gone, namespaces

TINY = """
name = "tiny"
rounds = 4
sweep_runs = 1
codecs = ["uint8"]
max_points = 4
network = "{network}"
[[devices]]
type = "orin-nano"
slowdown = 2
[[devices]]
type = "rpi5"
slowdown = 4
[[links]]
network = "wifi"
mbps = 40
[[changes]]
round = 2
network = "wifi"
mbps = 10
[[outages]]
round = 3
rounds = 1
[[policies]]
name = "cans"
"""


def command(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    (tmp_path / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "cans", *words], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )  # fmt: skip


def test_a_tiny_experiment_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY.format(network="auto"))
    running = command(tmp_path, "testbed", "run", "tiny.toml", "--out", "out", "--json")
    printed, said = running.communicate(timeout=150)
    assert running.returncode == 0, said
    report = json.loads(printed)
    rows = [
        json.loads(line) for line in (tmp_path / "out/inferences.jsonl").read_text().splitlines()
    ]
    rounds = [row for row in rows if row["policy"] == "cans"]
    assert len(rounds) == 4 * 2
    assert all(not row["error"] for row in rows)
    assert {row["mbps"] for row in rounds} == {40.0, 10.0}
    (model,) = report["models"]
    assert model["outage"]["cans"]["answered"] == 2
    assert {each["from_round"] for each in model["best_fixed"]} == {0, 2}
    assert [each["asked_slowdown"] for each in model["calibration"]] == [2.0, 4.0]
    assert model["policies"]["cans"]["not_answered"] == 0
    trace = tmp_path / "out/trace-mobilenet_v2.csv"
    assert ("rpi5", "wifi@40", "fc", "", 0) in read_trace(trace)
    assert simulate(policy="cans", world="trace", trace=trace, devices=4, rounds=20, seeds=1,
                    engine="reference").runs  # fmt: skip
    assert not folders(tmp_path / "tmp")
    assert not namespaces(running.pid)


def test_a_trace_of_every_choice(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY.format(network="loopback"))
    running = command(tmp_path, "testbed", "trace", "tiny.toml", "--runs", "2", "--out", "out")
    _, said = running.communicate(timeout=150)
    assert running.returncode == 0, said
    rows = read_trace(tmp_path / "out/mobilenet_v2.csv")
    assert {key.place for key in rows} == {("orin-nano", "wifi@40"), ("rpi5", "wifi@40")}
    assert len(rows) == 2 * 4
    assert all(len(found) == 2 for found in rows.values())
    assert not folders(tmp_path / "tmp")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "tiny.toml").write_text(TINY.format(network="loopback"))
    running = command(tmp_path, "testbed", "run", "tiny.toml", "--out", "out")
    try:
        until = time.monotonic() + 60
        while len(children := descendants(running.pid)) < 4 and time.monotonic() < until:
            time.sleep(0.1)
        assert len(children) >= 4
        assert folders(tmp_path / "tmp")
        running.send_signal(how)
        _, said = running.communicate(timeout=30)
    finally:
        running.kill()
    assert gone(children)
    if how is signal.SIGINT:
        assert running.returncode == 128 + signal.SIGINT
        assert "Traceback" not in said
        assert not folders(tmp_path / "tmp")


@pytest.mark.slow
def test_the_demo_runs_without_a_terminal(tmp_path: Path) -> None:
    running = command(tmp_path, "demo", "--devices", "2", "--seconds", "12", "--out", "out")
    printed, said = running.communicate(timeout=120)
    assert running.returncode == 0, said
    for text in ("the link drops", "the server is killed", "0 without an answer", "try next"):
        assert text in printed
    assert (tmp_path / "out/demo.png").exists()
    assert not folders(tmp_path / "tmp")


@pytest.mark.slow
def test_interrupting_the_demo_leaves_nothing(tmp_path: Path) -> None:
    running = command(tmp_path, "demo", "--devices", "2", "--seconds", "60")
    try:
        until = time.monotonic() + 90
        while len(children := descendants(running.pid)) < 6 and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(8)  # somewhere in the middle: all have started, none is done
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
    assert gone(children)
    assert "Traceback" not in said
    assert not folders(tmp_path / "tmp")
