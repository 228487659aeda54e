"""What a device says about an inference: the stages add up, and forbidden choices are not named."""

from __future__ import annotations

import re
from math import nan

import numpy as np

from cans.learning import Choice
from cans.live.device.reporting.report import Report, reason
from tests.live.toy import toy


def report(**found: object) -> Report:
    """One inference, with what is of interest."""
    fields = {
        "number": 1, "point": 3, "point_name": "block", "codec": "float32", "why": "because",
        "answered_by": "device", "predicted_ms": 4.0, "width_ms": 1.0, "front_ms": 5.0,
        "link_ms": nan, "server_ms": nan, "queue_ms": nan, "wait_ms": 0.1, "total_ms": 5.1,
        "bytes_up": 0, "learned": True, "fallback": "",
    }  # fmt: skip
    return Report(**(fields | found))  # type: ignore[arg-type]


def test_the_stages_add_up_to_what_the_caller_waited() -> None:
    assert str(report()).endswith("5.1 ms = wait 0.1 ms + front 5.0 ms; because")
    line = str(report(link_ms=2.0, server_ms=1.5, total_ms=29.0))
    total, *parts = (float(each) for each in re.findall(r"([0-9.]+) ms", line))
    assert line.endswith("+ other 20.4 ms; because")
    assert abs(total - sum(parts)) < 0.1


def test_a_reply_that_was_late_is_told() -> None:
    line = str(report(fallback="the server did not answer", total_ms=25.0))
    assert line.endswith("other 19.9 ms; because; finished here: the server did not answer")


def test_a_choice_is_compared_with_those_that_were_allowed() -> None:
    table = toy().table
    mean = np.arange(1.0, table.choices + 1)
    local = Choice(table.local, table.point_of[table.local], "float32", float(mean[-1]), -1e-9)
    only_local = np.zeros(table.choices, bool)
    only_local[table.local] = True
    assert reason(local, mean, table).startswith("worth finding out")
    alone = reason(local, mean, table, allowed=only_local)
    assert alone == f"lowest expected latency (expected {mean[-1]:.1f} ms, width 0.0 ms)"
