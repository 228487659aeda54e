"""Many devices at once; five minutes of it with `make test-slow`."""

from __future__ import annotations

import pytest

from tests.live.scale import run


def test_forty_devices() -> None:
    found = run(40, 4.0)
    assert found["errors"] == 0
    assert found["requests"] > 100


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_devices_for_five_minutes() -> None:
    found = run(200, 300.0)
    print(found)
    assert found["errors"] == 0
    assert found["fallbacks"] < found["requests"] / 100  # a full queue, answered by the device
    assert found["server_mb_end"] < found["server_mb_first_quarter"] * 1.1 + 5
