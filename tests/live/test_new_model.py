"""A server that is restarted with another model, and a device that keeps its own."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from cans.live.device.device import Device
from tests.live.faults import wait_until
from tests.live.process import free_port
from tests.live.running import running, terms
from tests.live.toy import example, toy


def test_a_device_says_once_that_its_server_has_another_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on alone with a right answer each time, and is back when its model is."""
    caplog.set_level(logging.WARNING)
    listen = f"127.0.0.1:{free_port()}"

    def answered_by(device: Device) -> str:
        result = device.run(example())
        np.testing.assert_allclose(result.outputs["y"], example()["t0"] + 4, rtol=1e-6)
        return result.report.answered_by

    def warnings() -> list[str]:
        return [each.message for each in caplog.records if "refuses this device" in each.message]

    with running(toy(), terms=terms("offload"), listen=listen):
        device = Device(listen, toy(), state=tmp_path)
        assert answered_by(device) == listen
    with device:
        with running(toy(layers=5), terms=terms("offload"), listen=listen) as other:
            wait_until(lambda: answered_by(device) == "device" and bool(warnings()), 20.0)
            joins = other.server.gate.calls.get(("Join", "NOT_FOUND"), 0)
            wait_until(lambda: other.server.gate.calls[("Join", "NOT_FOUND")] > joins + 1, 20.0)
            assert answered_by(device) == "device"
            assert len(warnings()) == 1
        with running(toy(), terms=terms("offload"), listen=listen):
            wait_until(lambda: answered_by(device) == listen, 20.0)
