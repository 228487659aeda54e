"""What the caller of a device waits on a slow link, against the same choice without learning.

Two devices behind one proxy of 60 ms round trip take the same fixed choice, requests one after the
other, in alternating blocks; one of them learns as it does by default, the other not at all.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROUND_TRIP_S = 0.06
BLOCKS, PER_BLOCK = 8, 20
BAR = 1.03
BAR_REPORT_MS = 1.0


def run(blocks: int = BLOCKS, per_block: int = PER_BLOCK) -> dict[str, Any]:
    """Quantiles of what callers waited, and how far reports were off."""
    from tests.live.process import free_port, server
    from tests.live.proxy import Proxy
    from tests.live.toy import example, toy

    from cans.live.device.hooked import HookedDevice as Device
    from cans.live.device.hooks import Hooks

    waited: dict[str, list[float]] = {"learning": [], "not learning": []}
    off: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        process = server(port, "memory:", policy="cans")
        proxy = Proxy(port)
        proxy.reply_delay = ROUND_TRIP_S
        devices = {
            name: Device(
                proxy.address, toy(block_seconds=0.05), "bench", state=Path(folder) / name, seed=1,
                hooks=Hooks(force=0, learning=name == "learning"),
            )
            for name in waited
        }  # fmt: skip
        for block in range(blocks + 1):
            for name, device in devices.items():
                for _ in range(per_block):
                    start = time.perf_counter()
                    result = device.run(example())
                    took = (time.perf_counter() - start) * 1e3
                    if block:  # the first one warms up
                        waited[name].append(took)
                        off.append(abs(took - result.report.total_ms))
        for device in devices.values():
            device.close()
        proxy.close()
        process.stop()
    ratios = {
        quantile: float(np.quantile(waited["learning"], quantile)
                        / np.quantile(waited["not learning"], quantile))
        for quantile in (0.5, 0.9)
    }  # fmt: skip
    return {
        "benchmark": "caller",
        "bar": f"<= {BAR} x the same choice without learning; reports within {BAR_REPORT_MS} ms",
        "round_trip_ms": ROUND_TRIP_S * 1e3,
        "requests": len(waited["learning"]),
        "median_ms": {name: float(np.median(each)) for name, each in waited.items()},
        "p90_ms": {name: float(np.quantile(each, 0.9)) for name, each in waited.items()},
        "ratio_median": ratios[0.5],
        "ratio_p90": ratios[0.9],
        "report_off_ms_p99": float(np.quantile(off, 0.99)),
        "pass": max(ratios.values()) <= BAR and float(np.quantile(off, 0.99)) <= BAR_REPORT_MS,
    }
