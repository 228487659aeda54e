"""Servers and agents as processes of their own, so that they can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent.parent


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Process:
    """A child that says when it is ready, and can be stopped softly or hard."""

    def __init__(self, *words: str) -> None:
        self._command = [sys.executable, "-m", "tests.live.process", *words]
        self.child: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        self.child = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line.startswith("ready"), f"{self._command} did not start: {line!r}"

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.child.poll() is None:
            self.child.send_signal(how)
        self.child.wait(30)
        if self.child.stdout is not None:
            self.child.stdout.close()


def server(port: int, store: str, **options: Any) -> Process:
    return Process("serve", str(port), store, json.dumps(options))


def agent(port: int, state: Path, ledger: Path) -> Process:
    return Process("agent", str(port), str(state), str(ledger))


POLICY = os.environ.get("CANS_FAULT_POLICY", "fedlinucb-dw")
"""Of the fault suite; its table is made with the default policy of `cans serve`."""


def eager(policy: str = POLICY, delivery: str = "immediate", fresh: bool = POLICY == "cans") -> Any:
    """Terms under which nearly every observation is uploaded."""
    from cans.learning import Hyperparameters
    from tests.live.running import terms

    hyperparameters = Hyperparameters(offline_runs=2, alpha=1e-6)
    return terms(policy, hyperparameters=hyperparameters, delivery=delivery, fresh_pools=fresh)


def _serve(port: int, store: str, options: dict[str, Any]) -> None:
    from cans.live.server.door.quotas import QuotaOptions
    from cans.live.server.server import ServerOptions, serve
    from tests.live.toy import toy

    if "clock" in options:
        _follow(Path(options.pop("clock")))
    model = toy(block_seconds=options.pop("block_seconds", 0.0))
    terms = eager(options.pop("policy", POLICY), options.pop("delivery", "immediate"))
    if "quotas" in options:
        options["quotas"] = QuotaOptions(**options["quotas"])
    options.setdefault("books", False)  # tests keep accounts of what devices say
    made = ServerOptions(terms, f"127.0.0.1:{port}", store, drain_seconds=1.0, **options)
    asyncio.run(serve([model], made, lambda _: print("ready", flush=True)))


def _follow(clock: Path) -> None:
    """Shift Python's wall clock by the seconds in a file, from now on. (libfaketime would shift all
    of the process, but it stalls gRPC even without a jump.)"""
    real = time.time
    time.time = lambda: real() + float(clock.read_text() or 0)  # type: ignore[assignment]


def _agent(port: int, state: Path, ledger: Path) -> None:
    """Infer for ever; write down each observation before it can be committed."""
    from cans.live.device.hooked import HookedDevice as Device
    from cans.live.device.hooks import Hooks
    from tests.live.ledger import Ledger
    from tests.live.toy import example, toy

    file = ledger.open("a", buffering=1)
    file.write("\n")  # what a kill has cut in two ends here

    class Written(Ledger):
        def latencies(self, choice: Any, measured: Any) -> Any:
            found = super().latencies(choice, measured)
            file.write(json.dumps([choice.row, *found]) + "\n")
            return found

    going = True

    def stop(*_: object) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, stop)
    hooks = Hooks(stopwatch=Written())
    with Device(f"127.0.0.1:{port}", toy(), "rpi5", state=state, hooks=hooks) as device:
        print("ready", flush=True)
        inputs = example()
        while going:
            outputs = device.infer(inputs)
            assert np.allclose(outputs["y"], inputs["t0"] + 4)
        device.settle()


def main() -> None:
    match sys.argv[1:]:
        case ["serve", port, store, options]:
            _serve(int(port), store, json.loads(options))
        case ["agent", port, state, ledger]:
            _agent(int(port), Path(state), Path(ledger))


if __name__ == "__main__":
    main()
