"""What the live page costs the server: CPU per request with fifty devices and three open streams.

Servers that record nothing of their devices, that record (as every server does), and one that shows
the page to three browsers besides. With a back-end of a few milliseconds of convolutions they take
turns in short windows. With one that does nothing, the hardest comparison, they run at the same
time, so that whatever else the machine does disturbs all alike; one of them is there twice, and
what the two differ by is what a ratio is uncertain by.
"""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

DEVICES = 50
PER_SECOND = 2.0  # inferences of a device
WINDOW = 3.0  # seconds
TURNS = 6
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
                   name=f"device-{i}", state=folder / str(i), local=path == "nothing",
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


def in_turns(path: str, inputs: Any, folder: Path) -> dict[str, float]:
    """Medians of CPU per request, in ms, and of the ratios within each turn, whose windows follow
    one another: what else the machine does changes more slowly."""
    sides = [Side(kind, path, folder / kind, inputs) for kind in ("bare", "records", "page")]
    cost = np.zeros((TURNS, len(sides)))
    try:
        for side in sides:
            side.window(2.0)  # sessions are built, connections made
        for turn in range(TURNS):
            for number in range(len(sides)):
                place = (turn + number) % len(sides)
                cost[turn, place] = sides[place].window(WINDOW)
    finally:
        for side in sides:
            side.close()
    bare, records, page = cost.T
    return {
        "bare_cpu_ms_per_request": float(np.median(bare)),
        "records_cpu_ms_per_request": float(np.median(records)),
        "page_cpu_ms_per_request": float(np.median(page)),
        "records_over_bare": float(np.median(records / bare)),
        "page_over_bare": float(np.median(page / bare)),
        "page_over_records": float(np.median(page / records)),
    }


def at_once(path: str, inputs: Any, folder: Path) -> dict[str, float]:
    """The same with all servers in use at the same time; the second is like the first."""
    kinds = ("records", "records", "page")
    sides = [Side(kind, path, folder / str(i), inputs) for i, kind in enumerate(kinds)]
    cost = np.zeros((TURNS, len(sides)))
    try:
        for side in sides:
            side.window(2.0)
        for turn in range(TURNS):
            with ThreadPoolExecutor(len(sides)) as pool:
                cost[turn] = list(pool.map(lambda side: side.window(2 * WINDOW), sides))
    finally:
        for side in sides:
            side.close()
    first, second, page = cost.T
    return {
        "records_cpu_ms_per_request": float(np.median(first)),
        "page_cpu_ms_per_request": float(np.median(page)),
        "page_over_records": float(np.median(2 * page / (first + second))),
        "records_over_records": float(np.median(second / first)),
        "records_threads_over_the_rest": float(np.median(sides[0].aside[1:])),
        "page_threads_over_the_rest": float(np.median(sides[2].aside[1:])),
    }


def run() -> dict[str, Any]:
    from tests.live.onnx_models import convolutions
    from tests.live.toy import example

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = convolutions(folder / "small.onnx", layers=6, channels=32, size=64)
        picture = {"input": np.zeros((1, 3, 64, 64), np.float32)}
        real = in_turns(str(path), picture, folder / "real")
        nothing = at_once("nothing", example(), folder / "nothing")
    return {
        "devices": DEVICES,
        "streams": 3,
        "convolutions": real,
        "nothing": nothing,
        "bars": {"page_over_bare": BAR, "page_over_records": BAR},
        "bars_met": {
            "page_over_bare": real["page_over_bare"] <= BAR,
            "page_over_records": nothing["page_over_records"] <= BAR,
            "page_threads": nothing["page_threads_over_the_rest"] <= BAR - 1.0,
        },
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], sys.argv[3])
