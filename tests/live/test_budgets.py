"""Budgets of a device: bytes of a metered link, and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cans
from cans.errors import InputError
from cans.live.device.servers.allowance import Allowance
from cans.live.split import Cutting
from cans.live.splitting import load_model, split
from live.running import running, terms
from live.toy import example, toy

SIZE = 10_000  # bytes of the toy's tensors are four times as many
PER_DAY = 0.5  # megabytes


class Calendar:
    day = "2030-01-01"

    def __call__(self) -> str:
        return self.day


def test_a_device_answers_alone_when_the_day_is_used_up(tmp_path: Path) -> None:
    model = toy(SIZE)
    with running(model, terms=terms("offload")) as server:
        options = {"state": tmp_path, "max_mb_per_day": PER_DAY}
        with cans.Device(server.address, model, **options) as device:
            reports = [device.run(example(SIZE)).report for _ in range(20)]
            sent = [each for each in reports if each.answered_by == server.address]
            assert 2 <= len(sent) <= PER_DAY * 1e6 / (4 * SIZE)
            assert reports[-1].answered_by == "device"
            assert "(--max-mb-per-day)" in reports[-1].why
        with cans.Device(server.address, model, **options) as device:  # the same day
            device.run(example(SIZE))
            assert "(--max-mb-per-day)" in device.run(example(SIZE)).report.why
            assert device._contact.allowance._used <= device._contact.allowance.most


def test_the_next_day_and_a_killed_process(tmp_path: Path) -> None:
    calendar = Calendar()
    allowance = Allowance(1.0, calendar)
    allowance.keep_in(tmp_path)
    for _ in range(90):
        allowance.add(10_000)
    killed = Allowance(1.0, calendar)  # no farewell was said
    killed.keep_in(tmp_path)
    assert 90 * 10_200 <= killed._used <= 90 * 10_200 + 10_000
    assert not killed.spent
    killed.add(80_000)
    assert killed.spent
    assert not killed.allows(1)
    calendar.day = "2029-12-31"  # a clock that was put back begins no new day
    assert killed.spent
    calendar.day = "2030-01-02"
    assert not killed.spent
    assert killed.allows(900_000)


def test_without_a_budget_nothing_is_counted_or_written(tmp_path: Path) -> None:
    allowance = Allowance(None)
    allowance.keep_in(tmp_path)
    allowance.add(10**12)
    assert not allowance.spent
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_something_else_is_no_budget(tmp_path: Path) -> None:
    for text in ("", "[]", "null", '{"day": 3}', "\0"):
        (tmp_path / "sent-today").write_text(text)
        allowance = Allowance(1.0)
        allowance.keep_in(tmp_path)
        assert not allowance.spent


def test_too_little_memory_is_one_clear_line() -> None:
    model = load_model("mobilenet_v2", Cutting())
    with pytest.raises(InputError, match=r"--max-memory-mb 10 is too little: mobilenet_v2 needs"):
        split(model, Cutting(), max_memory=10_000_000)
    for wrong in ({"max_memory_mb": 0.0}, {"max_mb_per_day": -1.0}):
        with pytest.raises(InputError, match="must be positive"):
            cans.Device("127.0.0.1:9", "mobilenet_v2", **wrong)


USES_EVERY_POINT = """
import sys
import numpy as np
from cans.live.split import Cutting
from cans.live.splitting import load_model, split
from cans.models.run.inputs import random_inputs

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

model = load_model("mobilenet_v2", Cutting())
import onnxruntime
before = resident()
made = split(model, Cutting(), max_memory=int(sys.argv[1]))
inputs = random_inputs(made.inputs, np.random.default_rng(0))
for point in range(1, len(made.points)):
    made.executor.prepare(point, ("front",), calibrate=False)
    made.executor.run_front(point, inputs)
print(resident() - before)
"""


def test_memory_stays_within_the_budget() -> None:
    budget = 70_000_000
    found = subprocess.run([sys.executable, "-c", USES_EVERY_POINT, str(budget)],
                           capture_output=True, text=True, check=True, timeout=300)  # fmt: skip
    assert int(found.stdout) < budget
