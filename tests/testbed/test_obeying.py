"""Orders on standard input, answers on standard output, one line each."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cans.errors import InputError
from cans.live.device.command.obeying import Obedience
from cans.live.device.hooked import HookedDevice as Device
from tests.live.running import running
from tests.live.toy import example, toy


def obey(device: Device, *orders: Any) -> list[dict[str, Any]]:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in orders]
    said = io.StringIO()
    Obedience(device, example).run(io.StringIO("\n".join(lines) + "\n"), said)
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_a_forced_choice_is_taken_at_the_pace_of_the_link(tmp_path: Path) -> None:
    with (
        running(toy()) as server,
        Device(server.address, toy(), "rpi5", state=tmp_path) as device,
    ):
        ready, done, forced, free, _, slow = obey(
            device,
            {"do": "set", "force": 1},
            {"do": "infer"},
            {"do": "set"},
            {"do": "set", "force": 0, "mbps": 0.05},
            {"do": "infer"},
        )
    assert ready == {"ready": True, "joined": True}
    assert done == free == {"ok": True}
    assert forced["point"] == 1
    assert forced["why"] == "the testbed asked for it"
    assert slow["point"] == 0
    assert slow["link_ms"] >= slow["bytes_up"] * 8e-3 / 0.05


def test_an_order_that_is_none_is_an_error(tmp_path: Path) -> None:
    with (
        running(toy()) as server,
        Device(server.address, toy(), "rpi5", state=tmp_path) as device,
    ):
        for order in ("garbage", {"do": "dance"}, {}, [1]):
            with pytest.raises(InputError, match="not an order"):
                obey(device, order)
