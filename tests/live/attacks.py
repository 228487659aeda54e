"""`python -m tests.live.attacks [SECONDS]` attacks a server of mobilenet_v2, in every way of
`attackers`, and prints the table of docs/reliability.md."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cans.live.device.device import Device
from tests.live.attackers import ATTACKS, WITHOUT_TOKEN
from tests.live.process import ROOT, free_port

DESCRIPTORS = 1024
LARGEST_MB = 512


@dataclass(frozen=True)
class Outcome:
    """What an attack did to a server and to an honest device."""

    attack: str
    tried: int
    calm_ms: float  # median of the honest device before
    attacked_ms: float  # and meanwhile
    answered: int  # requests of the honest device meanwhile ...
    fallbacks: int  # ... and how many of them the server did not answer
    peak_mb: float  # resident, of the server


class Server:
    """`cans serve` as a user starts it, with few descriptors."""

    def __init__(self, model: str, folder: Path, *more: str) -> None:
        self.port = free_port()
        self.log = folder / "server.log"
        tokens = folder / "tokens"
        tokens.write_text("honest honest-token\nenemy enemy-token\n")
        tokens.chmod(0o600)
        command = [
            sys.executable, "-m", "cans", "serve", "--model", model, "--listen",
            f"127.0.0.1:{self.port}", "--store", f"sqlite:{folder / 'pools.sqlite'}",
            "--token-file", str(tokens), *more,
        ]  # fmt: skip
        with self.log.open("w") as log:
            self.child = subprocess.Popen(
                command, stderr=log, cwd=ROOT, preexec_fn=_few_descriptors
            )
        for _ in range(600):
            if "serving" in self.log.read_text():
                return
            assert self.child.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError("the server did not start")

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found.group(1)) / 1024

    def honest_device(self, folder: Path) -> Device:
        """One that always offloads its raw input."""
        device = Device(
            f"127.0.0.1:{self.port}", "mobilenet_v2", state=folder / "device", device="honest",
            token="honest-token", seed=1,
        )  # fmt: skip
        device.testbed(force=0)
        return device

    def stop(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(30)


def _few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def honest(device: Device, inputs: dict[str, Any], seconds: float) -> tuple[list[float], int]:
    """What requests take, in ms, one after the other with pauses; and how many fell back."""
    times, fallbacks = [], 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begin = time.perf_counter()
        device.infer(inputs)
        times.append((time.perf_counter() - begin) * 1e3)
        device.settle()
        assert device.last is not None
        fallbacks += bool(device.last.fallback)
        time.sleep(0.05)
    return times, fallbacks


def attacked(
    name: str, server: Server, device: Device, inputs: dict[str, Any], seconds: float
) -> Outcome:
    """Attack a server for so long while an honest device uses it."""
    calm, _ = honest(device, inputs, min(seconds, 10.0))
    token = "" if name in WITHOUT_TOKEN else "enemy-token"
    attacker = subprocess.Popen(
        [sys.executable, "-m", "tests.live.attackers", name, str(server.port), str(seconds), token,
         json.dumps(information(device))],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    time.sleep(1.0)
    times, fallbacks = honest(device, inputs, seconds - 1.0)
    out, _ = attacker.communicate(timeout=seconds + 60)
    assert attacker.returncode == 0
    assert server.child.poll() is None, "the server died"
    middle = [float(np.median(each)) for each in (calm, times)]
    return Outcome(name, int(out), *middle, len(times), fallbacks, server.peak_mb())


def information(device: Device) -> dict[str, Any]:
    """What the enemy, who is a joined device too, knows."""
    learner = device._experience.learner
    assert learner is not None
    tensor = device.model.points[0].tensors[0]
    parts = {
        part.name: learner.table.columns(part.explains).shape[1] for part in learner.policy.parts
    }
    return {
        "device": "enemy", "model": learner.table.digest, "table": learner.table.version,
        "policy": learner.policy.name, "tensor": tensor.name, "shape": list(tensor.shape),
        "columns": parts,
    }  # fmt: skip


def main(seconds: float, names: list[str]) -> None:
    print("| attack | tried | honest device ms before | during | answers | fallbacks | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            server = Server("mobilenet_v2", Path(folder))
            try:
                with server.honest_device(Path(folder)) as device:
                    inputs = {
                        each.name: np.zeros(each.shape, each.dtype) for each in device.model.inputs
                    }
                    honest(device, inputs, 3.0)
                    found = attacked(name, server, device, inputs, seconds)
            finally:
                server.stop()
        print(
            f"| {found.attack} | {found.tried} | {found.calm_ms:.1f} | {found.attacked_ms:.1f} | "
            f"{found.answered} | {found.fallbacks} | {found.peak_mb:.0f} |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    chosen = sys.argv[2:] or list(ATTACKS)
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, chosen)
