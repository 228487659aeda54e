"""What the caller of a device waits on a slow link, against the same choice without learning.

Two devices behind one link of 60 ms round trip, default options, take the same fixed choice,
requests one after the other, in alternating blocks; one of them learns, the other does not. The
link and the server are processes of their own, as they are to a user.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleet_server import Served
from benchmarks.slow_link import SlowLink

ROUND_TRIP_S = 0.06
BLOCKS, PER_BLOCK = 12, 20
BAR = 1.03
BAR_REPORT_MS = 1.0


def run(blocks: int = BLOCKS, per_block: int = PER_BLOCK) -> dict[str, Any]:
    """Quantiles of what callers waited, and how far reports were off."""
    from tests.live.toy import example, toy

    from cans.live.device.hooked import HookedDevice as Device
    from cans.live.device.hooks import Hooks

    waited: dict[str, list[float]] = {"learning": [], "not_learning": []}
    off: list[float] = []
    inputs = example()
    with tempfile.TemporaryDirectory() as folder:
        served = Served("cans", Path(folder))
        link = SlowLink(served.port, ROUND_TRIP_S)
        devices = {
            name: Device(
                link.address, toy(block_seconds=0.05), "bench", state=Path(folder) / name, seed=1,
                hooks=Hooks(force=0, learning=name == "learning"),
            )
            for name in waited
        }  # fmt: skip
        for block in range(blocks + 1):
            for name in list(waited)[:: -1 if block % 2 else 1]:
                for _ in range(per_block):
                    start = time.perf_counter()
                    result = devices[name].run(inputs)
                    took = (time.perf_counter() - start) * 1e3
                    if block:  # the first one warms up
                        waited[name].append(took)
                        off.append(abs(took - result.report.total_ms))
        for device in devices.values():
            device.close()
        link.close()
        served.stop()
    quantiles = {
        label: {name: float(np.quantile(each, share)) for name, each in waited.items()}
        for label, share in (("median_ms", 0.5), ("p90_ms", 0.9))
    }
    ratios = {label: each["learning"] / each["not_learning"] for label, each in quantiles.items()}
    off_ms = float(np.quantile(off, 0.99))
    return {
        "round_trip_ms": ROUND_TRIP_S * 1e3,
        "requests_each": len(waited["learning"]),
        **quantiles,
        "ratio_median": ratios["median_ms"],
        "ratio_p90": ratios["p90_ms"],
        "report_off_ms_p99": off_ms,
        "report_off_ms_most": max(off),
        "bars_met": {
            "median": ratios["median_ms"] <= BAR,
            "p90": ratios["p90_ms"] <= BAR,
            "report_is_what_was_waited": off_ms <= BAR_REPORT_MS,
        },
    }
