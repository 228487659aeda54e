"""What the live page costs the server: CPU per request with fifty devices and three open streams.

Three servers take turns in short windows: one that remembers nothing of its devices, one that
remembers (as every server does), and one that shows the page to three browsers besides. The
back-end is a few milliseconds of convolutions, and nothing at all: then all that is left is the
server's own work, the hardest comparison.
"""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

DEVICES = 50
PER_SECOND = 2.0  # inferences of a device
WINDOW = 3.0  # seconds
TURNS = 6
KINDS = ("bare", "remembers", "page")
BAR = 1.05


def serve(kind: str, path: str) -> None:
    """A server in a process of its own; says its ports, ends with standard input."""
    from tests.live.toy import toy

    from cans.dashboard.serving import show_page
    from cans.learning import policy_named
    from cans.live.server.server import EdgeServer, ServerOptions
    from cans.live.split import Cutting
    from cans.live.splitting import load_model, split
    from cans.live.wire.terms import Terms

    model = toy() if path == "nothing" else split(load_model(path, Cutting()), Cutting())
    options = ServerOptions(
        Terms(policy_named("offload")), listen="127.0.0.1:0", workers=1, queue=100,
        observed=kind != "bare",
    )  # fmt: skip

    async def main() -> None:
        async with EdgeServer([model], options) as server:
            page = show_page(server, "127.0.0.1:0", None) if kind == "page" else None
            print(server.port, 0 if page is None else page.port, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, _answer)
            if page is not None:
                page.close()

    asyncio.run(main())


def _answer() -> None:
    """A line for every line of standard input, until it ends."""
    for _ in sys.stdin:
        print(*_cpu_by_thread(), flush=True)


def _cpu_by_thread() -> tuple[float, float]:
    """CPU seconds of the threads that remember and show, and of the whole process so far."""
    aside = sum(
        time.clock_gettime(time.pthread_getcpuclockid(each.ident))
        for each in threading.enumerate()
        if each.name in ("recorder", "page") and each.ident is not None
    )
    return aside, time.process_time()


class Side:
    """One server with its devices."""

    def __init__(self, kind: str, path: str, folder: Path, inputs: Any) -> None:
        from tests.live.toy import toy

        from cans.live.device.device import Device

        self.kind = kind
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.page_cost", "serve", kind, path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parent.parent,
        )  # fmt: skip
        assert self.process.stdout is not None
        port, page = map(int, self.process.stdout.readline().split())
        self.devices = [
            Device(f"127.0.0.1:{port}", toy() if path == "nothing" else path, "bench",
                   name=f"device-{i}", state=folder / kind / str(i), local=path == "nothing",
                   connect_seconds=30.0)
            for i in range(DEVICES)
        ]  # fmt: skip
        self._inputs = inputs
        self._streams = [_follow(page) for _ in range(3)] if page else []
        self.aside: list[float] = []  # CPU of threads that remember and show, over all the rest

    def window(self, seconds: float) -> float:
        """CPU milliseconds of the server for each request of a window."""
        until = time.monotonic() + seconds
        counts = [0] * DEVICES

        def infer(number: int) -> None:
            time.sleep(number / DEVICES / PER_SECOND)
            while time.monotonic() < until:
                start = time.monotonic()
                self.devices[number].infer(self._inputs)
                counts[number] += 1
                time.sleep(max(1.0 / PER_SECOND - (time.monotonic() - start), 0.0))

        threads = [threading.Thread(target=infer, args=(i,)) for i in range(DEVICES)]
        aside, whole = self._cpu()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after, end = self._cpu()
        self.aside.append((after - aside) / (end - whole - (after - aside)))
        return (end - whole) * 1e3 / sum(counts)

    def _cpu(self) -> tuple[float, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        aside, whole = map(float, self.process.stdout.readline().split())
        return aside, whole

    def close(self) -> None:
        for device in self.devices:
            device.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


def _follow(port: int) -> threading.Thread:
    """Read the page's stream as a browser would, until the server ends."""

    def read() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/api/stream")
        answer = connection.getresponse()
        try:
            while answer.read1(65536):
                pass
        except (OSError, http.client.HTTPException):
            pass
        connection.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def compare(path: str, inputs: Any, folder: Path) -> dict[str, float]:
    """Medians of CPU per request, in ms, and of the ratios within each turn, whose windows follow
    one another: what else the machine does changes more slowly."""
    sides = [Side(kind, path, folder, inputs) for kind in KINDS]
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    try:
        for side in sides:
            side.window(2.0)  # sessions are built, connections made
        for turn in range(TURNS):
            for number in range(len(sides)):
                side = sides[(turn + number) % len(sides)]
                found[side.kind].append(side.window(WINDOW))
    finally:
        for side in sides:
            side.close()
    cost = {kind: np.array(found[kind]) for kind in KINDS}

    def ratio(one: str, other: str) -> float:
        return float(np.median(cost[one] / cost[other]))

    return {
        **{f"{kind}_cpu_ms_per_request": float(np.median(cost[kind])) for kind in KINDS},
        "remembers_over_bare": ratio("remembers", "bare"),
        "page_over_bare": ratio("page", "bare"),
        "page_over_remembers": ratio("page", "remembers"),
        **{
            f"{side.kind}_threads_over_the_rest": float(np.median(side.aside[1:])) for side in sides
        },
    }


def run() -> dict[str, Any]:
    from tests.live.onnx_models import convolutions
    from tests.live.toy import example

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = convolutions(folder / "small.onnx", layers=6, channels=32, size=64)
        picture = {"input": np.zeros((1, 3, 64, 64), np.float32)}
        real = compare(str(path), picture, folder / "real")
        nothing = compare("nothing", example(), folder / "nothing")
    return {
        "devices": DEVICES,
        "streams": 3,
        "convolutions": real,
        "nothing": nothing,
        "bars": {"page_over_bare": BAR},
        "bars_met": {
            "page_over_bare": real["page_over_bare"] <= BAR,
            "page_threads": nothing["page_threads_over_the_rest"] <= BAR - 1.0,
        },
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], sys.argv[3])
