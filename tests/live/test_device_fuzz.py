"""A device whose server says anything: it answers, learns nothing absurd, and comes back."""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from cans.errors import CansError
from cans.learning import Hyperparameters
from cans.live.device.hooked import HookedDevice
from cans.live.device.hooks import Hooks
from cans.live.device.servers.route import BreakerSettings
from tests.live.faults import wait_until
from tests.live.mutating import METHODS, MutatingServer
from tests.live.running import running, terms
from tests.live.toy import example, toy

IMPATIENT = BreakerSettings(failures=1 << 30, first_wait=0.005, longest_wait=0.01)
EAGER = terms("cans", hyperparameters=Hyperparameters(offline_runs=2, alpha=1e-6), fresh_pools=True)


def survive(folder: Path, count: int, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Infer until so many replies were damaged, every second one."""
    caplog.set_level(logging.ERROR)
    with (
        running(toy(), terms=EAGER) as real,
        closing(MutatingServer(real.address, seed)) as server,
        HookedDevice(
            server.address, toy(), "rpi5", state=folder, hooks=Hooks(breaker=IMPATIENT)
        ) as device,
    ):
        server.share = 0.5
        quotes = device._requests.decisions.quotes
        quotes.wanted = lambda asked, *_: asked is not None  # type: ignore[method-assign]
        number = 0
        while server.mutated.total() < count:
            device.hooks.force = number % 5 if number % 3 else None
            output = device.infer(example(seed=number))["y"]
            assert (output.dtype, output.shape) == (np.dtype(np.float32), (1, 64))
            if number % 4 == 0:
                with suppress(CansError):
                    device.refresh()
            if number % 7 == 0 and device.joined:
                device._session._probe((100,))
            number += 1
        server.share, device.hooks.force = 0.0, 0
        wait_until(lambda: device.run(example()).report.answered_by == server.address, 10.0)
        result = device.run(example())
        np.testing.assert_allclose(result.outputs["y"], example()["t0"] + 4, rtol=1e-6)
    assert set(METHODS) <= set(server.mutated), server.mutated
    assert not [each for each in caplog.records if "failed at a task" in each.message]


def test_two_hundred_damaged_replies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    survive(tmp_path, 200, 0, caplog)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twelve_thousand_damaged_replies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    survive(tmp_path, 12_000, 1, caplog)
