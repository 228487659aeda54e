"""Answers per second of a server that runs waiting requests together, over one that does not.

    python -m benchmarks batching

Eight devices, two requests of each on their way, ask two servers in turns: `--batch 8`, and none.
Servers (one worker, one thread) have one core and the devices the other. Two models: products of
one row, which read far more weights than they compute with (batches help), and convolutions, which
do not (they must not suffer, whether the server finds batches worth it or not).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.request_path import _pin

DEVICES, IN_FLIGHT, TOGETHER = 8, 2, 8
SECONDS, TURNS = 6.0, 4  # of each server
BARS = {"fully connected": 1.5, "convolutions": 0.97}


def _models(folder: Path) -> dict[str, Path]:
    from tests.live.onnx_models import convolutions, fully_connected

    return {
        "fully connected": fully_connected(folder / "fully.onnx", width=1536, layers=4),
        "convolutions": convolutions(folder / "conv.onnx", layers=6, channels=64, size=64),
    }


def serve(path: Path, together: int) -> None:
    from cans.learning import policy_named
    from cans.live.memory import keep_memory
    from cans.live.server.server import EdgeServer, ServerOptions
    from cans.live.server.workers import Workers
    from cans.live.split import Cutting
    from cans.live.splitting import load_model, split
    from cans.live.wire.terms import Terms

    _pin(1)
    keep_memory()
    model = split(load_model(path, Cutting()), Cutting())
    terms = Terms(policy_named("offload"))
    options = ServerOptions(terms, listen="127.0.0.1:0", workers=1, queue=64, batch=together)

    async def main() -> None:
        async with EdgeServer([model], options) as server:
            print(server.port, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            pool = server.workers
            batches = pool.batches if isinstance(pool, Workers) else None
            print(0 if batches is None else batches.requests, flush=True)

    asyncio.run(main())


class Served:
    """A server, and the devices that ask it when it is their turn."""

    def __init__(self, path: Path, folder: Path, together: int) -> None:
        from cans.live.device.hooked import HookedDevice
        from cans.live.device.hooks import Hooks

        command = [sys.executable, "-m", "benchmarks.batching", str(path), str(together)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parent.parent,
        )  # fmt: skip
        port = self._line()
        options = {"deadline_ms": 60_000, "hooks": Hooks(hedge=False)}
        self._devices = [
            HookedDevice(f"127.0.0.1:{port}", path, "bench", state=folder / f"{together}-{i}",
                         **options)
            for i in range(DEVICES)
        ]  # fmt: skip
        self._inputs = {each.name: np.ones(each.shape, np.float32) for each in self._wanted()}
        self.answers, self.seconds = 0, 0.0

    def _wanted(self) -> Any:
        return self._devices[0].model.inputs

    def _line(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def ask(self, seconds: float) -> int:
        """How many answers came in so long."""
        counts, end = [0] * DEVICES, time.perf_counter() + seconds

        def infer(number: int) -> None:
            frames = (self._inputs for _ in takewhile(lambda _: time.perf_counter() < end, count()))
            for result in self._devices[number].stream(frames, IN_FLIGHT):
                assert not result.report.fallback, result.report.fallback
                counts[number] += time.perf_counter() < end

        threads = [threading.Thread(target=infer, args=(i,)) for i in range(DEVICES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)

    def close(self) -> int:
        """Stop; how many requests ran together with others."""
        for each in self._devices:
            each.close()
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        together = self._line()
        self._process.stdin.close()
        self._process.wait(20)
        return together


def of_model(path: Path, folder: Path, seconds: float, turns: int) -> dict[str, Any]:
    with ExitStack() as stack:
        both = [Served(path, folder, each) for each in (1, TOGETHER)]
        for each in both:
            stack.callback(each._process.kill)
            each.ask(5.0)  # until fused halves are built, and batches tried
        rates: list[list[float]] = [[], []]
        for turn in range(turns):
            for which in (0, 1) if turn % 2 else (1, 0):
                rates[which].append(both[which].ask(seconds) / seconds)
        _, ran_together = (each.close() for each in both)
    single, batched = (float(np.mean(each)) for each in rates)
    return {
        "single_per_second": single,
        "batched_per_second": batched,
        "ratio": batched / single,
        "ratio_by_turn": [b / a for a, b in zip(*rates, strict=True)],
        "requests_run_together": ran_together,
    }


def run(seconds: float = SECONDS, turns: int = TURNS) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = _models(folder)
        _pin(0)
        found: dict[str, Any] = {}
        for what, path in models.items():
            (folder / what).mkdir()
            found[what] = of_model(path, folder / what, seconds, turns)
            print(what, found[what], flush=True)
    met = {what: found[what]["ratio"] >= bar for what, bar in BARS.items()}
    return {"devices": DEVICES, "together": TOGETHER, **found, "bars": BARS, "bars_met": met}


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
