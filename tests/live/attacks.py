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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cans.live.device.hooked import HookedDevice as Device
from tests.live.attackers import ATTACKS, WITHOUT_TOKEN
from tests.live.process import ROOT, free_port

DESCRIPTORS = 1024
LARGEST_MB = 512


@dataclass(frozen=True)
class Outcome:
    """What an attack did to a server and to an honest device."""

    attack: str
    tried: int
    calm_ms: float  # median of an honest device at a server that is not attacked
    attacked_ms: float  # and of another one at this server, request by request in turn
    answered: int  # requests of the latter ...
    fallbacks: int  # ... and how many of them the server did not answer
    peak_mb: float  # resident, of the server


class Server:
    """`cans serve` as a user starts it, with few descriptors."""

    def __init__(self, model: str, folder: Path, *more: str) -> None:
        self.port = free_port()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
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

    def honest_device(self) -> Device:
        """One that always offloads its raw input."""
        device = Device(
            f"127.0.0.1:{self.port}", "mobilenet_v2", state=self.folder / "device", name="honest",
            token="honest-token", seed=1,
        )  # fmt: skip
        device.hooks.force = 0
        return device

    def stop(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(30)


def _few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def attacked(name: str, folder: Path, seconds: float) -> Outcome:
    """Attack a server for so long while an honest device uses it, and another one a second server:
    what the attacker takes of this machine's processors, it takes from both."""
    servers = [Server("mobilenet_v2", folder / each) for each in ("attacked", "calm")]
    devices = [each.honest_device() for each in servers]
    try:
        _in_turn(devices, 3.0)
        token = "" if name in WITHOUT_TOKEN else "enemy-token"
        attacker = subprocess.Popen(
            [sys.executable, "-m", "tests.live.attackers", name, str(servers[0].port),
             str(seconds), token, json.dumps(information(devices[0]))],
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        time.sleep(1.0)
        times, fallbacks = _in_turn(devices, seconds - 1.0)
        out, _ = attacker.communicate(timeout=seconds + 60)
        assert attacker.returncode == 0
        assert servers[0].child.poll() is None, "the server died"
        under, calm = (float(np.median(each)) for each in times)
        return Outcome(name, int(out), calm, under, len(times[0]), fallbacks, servers[0].peak_mb())
    finally:
        for device in devices:
            device.close()
        for server in servers:
            server.stop()


def _in_turn(devices: Sequence[Device], seconds: float) -> tuple[list[list[float]], int]:
    """What requests of each device take, in ms; and how many of the first fell back."""
    times: list[list[float]] = [[] for _ in devices]
    fallbacks = 0
    inputs = zeros(devices[0])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for i, device in enumerate(devices):
            begin = time.perf_counter()
            device.infer(inputs)
            times[i].append((time.perf_counter() - begin) * 1e3)
            device.settle()
            assert device.last is not None
            fallbacks += bool(device.last.fallback) and not i
            time.sleep(0.05)
    return times, fallbacks


def zeros(device: Device) -> dict[str, Any]:
    return {each.name: np.zeros(each.shape, each.dtype) for each in device.model.inputs}


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
    print("| attack | tried | not attacked ms | attacked ms | answers | fallbacks | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found = attacked(name, Path(folder), seconds)
        print(
            f"| {found.attack} | {found.tried} | {found.calm_ms:.1f} | {found.attacked_ms:.1f} | "
            f"{found.answered} | {found.fallbacks} | {found.peak_mb:.0f} |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    chosen = sys.argv[2:] or list(ATTACKS)
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, chosen)
