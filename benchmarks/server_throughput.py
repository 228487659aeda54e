"""How much of bare onnxruntime's throughput is left when eight devices ask over the network.

    python -m benchmarks.server_throughput

The server (one worker, one thread) has one core, the devices the other. Their front-end is nothing
and the whole model, of 50 ms or more, is the back-end. Bare onnxruntime runs the same file in a
loop on the server's core, before and after, because others may use this machine.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.request_path import _pin

DEVICES = 8
SECONDS = 20.0
BAR = 0.9


def _model(folder: Path) -> Path:
    from tests.live.onnx_models import convolutions

    return convolutions(folder / "convolutions.onnx", layers=11, channels=64, size=96)


def bare(path: Path, seconds: float) -> None:
    """Print runs per second of onnxruntime alone."""
    import onnxruntime

    _pin(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options)
    value = {"input": np.zeros((1, 3, 96, 96), np.float32)}
    for _ in range(3):
        session.run(None, value)
    runs, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        session.run(None, value)
        runs += 1
    print(json.dumps(runs / (time.perf_counter() - start)))


def serve(path: Path) -> None:
    from cans.learning import policy_named
    from cans.live.memory import keep_memory
    from cans.live.server.server import EdgeServer, ServerOptions
    from cans.live.split import Cutting
    from cans.live.splitting import load_model, split
    from cans.live.wire.terms import Terms

    _pin(1)
    keep_memory()
    model = split(load_model(path, Cutting()), Cutting())
    options = ServerOptions(Terms(policy_named("offload")), listen="127.0.0.1:0", workers=1)

    async def main() -> None:
        async with EdgeServer([model], options) as server:
            print(server.port, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    asyncio.run(main())


def _ask(
    port: int, path: Path, folder: Path, seconds: float, number_of_devices: int, in_flight: int
) -> tuple[float, float]:
    """Answers per second of so many devices, and the mean compute time of a back-end."""
    from cans.live.device.hooked import HookedDevice
    from cans.live.device.hooks import Hooks

    options = {"deadline_ms": 60_000, "hooks": Hooks(hedge=False)}  # all of it is the server's
    devices = [
        HookedDevice(f"127.0.0.1:{port}", path, "bench", state=folder / str(i), **options)
        for i in range(number_of_devices)
    ]
    value = np.zeros((1, 3, 96, 96), np.float32)
    counts, compute = [0] * number_of_devices, [0.0] * number_of_devices
    begin = time.perf_counter() + 5.0  # after the fused half is built
    end = begin + seconds

    def infer(number: int) -> None:
        frames = (value for _ in takewhile(lambda _: time.perf_counter() < end, count()))
        for result in devices[number].stream(frames, in_flight):
            last = result.report
            assert not last.fallback, last.fallback
            if begin < time.perf_counter() < end:
                counts[number] += 1
                compute[number] += last.server_ms - last.queue_ms

    threads = [threading.Thread(target=infer, args=(i,)) for i in range(number_of_devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for device in devices:
        device.close()
    return sum(counts) / seconds, sum(compute) / max(sum(counts), 1)


def run(seconds: float = SECONDS, devices: int = DEVICES, in_flight: int = 1) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = _model(folder)
        root = Path(__file__).parent.parent
        command = [sys.executable, "-m", "benchmarks.server_throughput"]

        def alone() -> float:
            words = [*command, "bare", str(path), str(seconds / 2)]
            return float(json.loads(subprocess.check_output(words, cwd=root)))

        before = alone()
        process = subprocess.Popen(
            [*command, "serve", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=root,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            _pin(0)
            ours, compute_ms = _ask(port, path, folder, seconds, devices, in_flight)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(20)
        after = alone()
    rate = (before + after) / 2
    return {
        "benchmark": "server_throughput",
        "devices": devices,
        "in_flight": in_flight,
        "back_end_ms": round(1e3 / rate, 1),
        "bare_per_second": round(rate, 2),
        "bare_before_after": [round(before, 2), round(after, 2)],
        "ours_per_second": round(ours, 2),
        "compute_ms_in_server": round(compute_ms, 1),
        "ratio": round(ours / rate, 3),
        "bar": f"ratio >= {BAR}",
        "pass": ours / rate >= BAR,
    }


def main() -> None:
    match sys.argv[1:]:
        case ["bare", path, seconds]:
            bare(Path(path), float(seconds))
        case ["serve", path]:
            serve(Path(path))
        case _:
            result = run()
            target = Path(__file__).parent / "results" / "server_throughput.json"
            target.parent.mkdir(exist_ok=True)
            target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
