"""Many devices against one server: `python -m tests.live.scale 200 300` prints what happened."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from cans.live.device.device import Device
from tests.live.process import ROOT, free_port, server
from tests.live.toy import example, toy

PROCESSES = 4


def run(devices: int, seconds: float) -> dict[str, Any]:
    """So many devices in four processes, one inference a second each."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        process = server(port, f"sqlite:{folder}/pools.sqlite", policy="offload")
        command = [sys.executable, "-m", "tests.live.scale", "clients", str(port),
                   str(devices // PROCESSES), str(seconds)]  # fmt: skip
        clients = [
            subprocess.Popen([*command, f"{folder}/{i}"], cwd=ROOT) for i in range(PROCESSES)
        ]
        memory: list[float] = []
        while any(client.poll() is None for client in clients):
            memory.append(_resident(process.child.pid))
            time.sleep(min(seconds / 20, 5.0))
        found = [json.loads(Path(f"{folder}/{i}/result").read_text()) for i in range(PROCESSES)]
        process.stop()
    queues = np.concatenate([each["queue_ms"] for each in found])
    totals = np.concatenate([each["total_ms"] for each in found])
    settled = memory[len(memory) // 4 : -1] or memory
    return {
        "devices": devices,
        "seconds": seconds,
        "requests": sum(each["requests"] for each in found),
        "errors": sum(each["errors"] for each in found),
        "fallbacks": sum(each["fallbacks"] for each in found),
        "queue_p50_ms": round(float(np.quantile(queues, 0.5)), 2),
        "queue_p99_ms": round(float(np.quantile(queues, 0.99)), 2),
        "total_p99_ms": round(float(np.quantile(totals, 0.99)), 1),
        "server_mb_first_quarter": round(settled[0], 1),
        "server_mb_end": round(settled[-1], 1),
        "server_mb_highest": round(max(memory), 1),
    }


def clients(port: int, devices: int, seconds: float, folder: Path) -> None:
    made = [
        Device(f"127.0.0.1:{port}", toy(), "rpi5", state=folder / str(i), seed=i,
               connect_seconds=30.0)
        for i in range(devices)
    ]  # fmt: skip
    until = time.monotonic() + seconds
    result: dict[str, Any] = {
        "requests": 0, "errors": 0, "fallbacks": 0, "queue_ms": [], "total_ms": []
    }  # fmt: skip
    lock = threading.Lock()

    def infer(device: Device, offset: float) -> None:
        inputs = example()
        time.sleep(offset)
        while time.monotonic() < until:
            start = time.monotonic()
            try:
                outputs = device.infer(inputs)
                right = np.allclose(outputs["y"], inputs["t0"] + 4)
            except Exception:
                right = False
            last = device.last
            with lock:
                result["requests"] += 1
                result["errors"] += not right
                if last is not None:
                    result["fallbacks"] += bool(last.fallback)
                    if not last.fallback:
                        result["queue_ms"].append(round(last.queue_ms, 3))
                    result["total_ms"].append(round(last.total_ms, 3))
            time.sleep(max(1.0 - (time.monotonic() - start), 0.0))

    threads = [
        threading.Thread(target=infer, args=(each, i / devices)) for i, each in enumerate(made)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for device in made:
        device.close()
    (folder / "result").write_text(json.dumps(result))


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


if __name__ == "__main__":
    if sys.argv[1] == "clients":
        clients(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
    else:
        print(json.dumps(run(int(sys.argv[1]), float(sys.argv[2])), indent=1))
