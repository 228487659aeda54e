"""Streams: several requests of one device on their way.

pipeline   front-end, link and server take about as long; the limit is the slowest of the three.
           The device aims at throughput and finds the cut by itself.
triton     80 ms round trip, whole offload, four in flight: `device.stream` against a stock
           tritonclient (Open Inference Protocol) on the same port, link and model, in turn.
killed     the server's process is killed (-9) in the middle of a stream: every frame is answered.
server     four streaming devices on a server of one core against bare onnxruntime on that core.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

LAYERS, BLOCK_S, RATE = 4, 0.015, 10e6  # half of the layers take as long as their tensor travels
SIZE = int(2 * BLOCK_S * RATE / 4)  # numbers that cross a cut
LEARNING, MEASURED = 80, 100  # frames
ROUND_TRIP_S, IN_FLIGHT = 0.08, 4
IN_THE_PIPELINE = 8  # enough for a machine that is late now and then
BAR_PIPELINE, BAR_TRITON, BAR_SERVER = 0.9, 0.9, 0.9


def serve() -> None:
    """The server behind a narrow link, in a process of its own; prints the link's address."""
    from tests.live.proxy import Proxy
    from tests.live.running import running, terms
    from tests.live.toy import toy

    with running(toy(SIZE, LAYERS, BLOCK_S), terms=terms("cans"), workers=1) as server:
        proxy = Proxy(server.server.port)
        proxy.upload_rate = RATE
        print(proxy.address, flush=True)
        sys.stdin.read()
        proxy.close()


def pipeline(folder: Path) -> dict[str, Any]:
    from tests.live.toy import example, toy

    import cans

    frames = [example(SIZE, seed) for seed in range(8)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.streams"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert process.stdout is not None
    address, model = process.stdout.readline().strip(), toy(SIZE, LAYERS, BLOCK_S)
    state, aim = folder / "pipeline", "throughput"
    with cans.Device(address, model, state=state, objective=aim) as device:
        for _ in device.stream((frames[i % 8] for i in range(LEARNING)), IN_THE_PIPELINE):
            pass
        begin, results = time.perf_counter(), []
        source = (frames[i % 8] for i in range(MEASURED))
        for i, result in enumerate(device.stream(source, IN_THE_PIPELINE)):
            assert np.allclose(result.outputs["y"], frames[i % 8]["t0"] + LAYERS)  # in order
            results.append(result)
        seconds = time.perf_counter() - begin
        reports = [each.report for each in results]
    process.communicate("")
    used = max({each.point for each in reports}, key=[each.point for each in reports].count)
    usual = [each for each in reports if each.point == used]
    link_ms = 1e3 * usual[0].bytes_up / RATE
    stages = {
        "front_ms": median(each.front_ms for each in usual),
        "link_ms": link_ms,
        "server_ms": median(each.server_ms - each.queue_ms for each in usual),
    }
    limit = 1e3 / max(stages.values())
    rate = MEASURED / seconds
    return {"point": used, **stages, "limit_per_second": limit, "per_second": rate,
            "one_at_a_time_limit": 1e3 / sum(stages.values()), "ratio": rate / limit}  # fmt: skip


def triton(folder: Path, blocks: int = 3, frames: int = 60) -> dict[str, Any]:
    from tests.live.onnx_models import convolutions
    from tests.live.proxy import Proxy
    from tests.live.running import running, terms

    import cans
    from cans.live.split import Cutting
    from cans.live.splitting import load_model, split

    path = convolutions(folder / "small.onnx", layers=2, channels=8, size=96)
    image = np.random.default_rng(0).standard_normal((1, 3, 96, 96)).astype(np.float32)
    rates: dict[str, list[float]] = {"cans": [], "tritonclient": []}
    model = split(load_model(path, Cutting()), Cutting())
    with running(model, terms=terms("offload")) as server:
        proxy = Proxy(server.server.port)
        proxy.reply_delay = ROUND_TRIP_S
        with cans.Device(
            proxy.address, path, state=folder / "triton", objective="throughput"
        ) as device:
            stock = _stock_client(proxy.address, model.name, image, frames)
            clients = {"cans": lambda: _stream(device, image, frames), "tritonclient": stock}
            for block in range(blocks + 1):
                for name, client in clients.items():
                    begin = time.perf_counter()
                    client()
                    if block:  # the first one warms up
                        rates[name].append(frames / (time.perf_counter() - begin))
        proxy.close()
    ours, theirs = (median(each) for each in rates.values())
    return {"cans_per_second": ours, "tritonclient_per_second": theirs, "ratio": ours / theirs}


def _stream(device: Any, image: Any, frames: int) -> None:
    for result in device.stream([image] * frames, IN_FLIGHT):
        assert result.report.answered_by != "device", result.report.fallback


def _stock_client(address: str, model: str, image: Any, frames: int) -> Any:
    from tritonclient import grpc

    client = grpc.InferenceServerClient(address)
    value = grpc.InferInput("input", list(image.shape), "FP32")
    value.set_data_from_numpy(image)

    def run() -> None:
        from threading import Semaphore

        places, errors = Semaphore(IN_FLIGHT), deque[Any]()

        def done(result: Any, error: Any) -> None:
            if error is not None:
                errors.append(error)
            places.release()

        for _ in range(frames):
            places.acquire()
            client.async_infer(model, [value], done)
        for _ in range(IN_FLIGHT):
            places.acquire()
        assert not errors, errors[0]

    return run


def killed(folder: Path, frames: int = 120) -> dict[str, Any]:
    from tests.live.process import free_port, server
    from tests.live.toy import example, toy

    import cans

    port = free_port()
    process = server(port, "memory:", policy="offload")
    wrong = 0
    with cans.Device(f"127.0.0.1:{port}", toy(), state=folder / "killed") as device:
        by_server = 0
        source = (example(seed=seed) for seed in range(frames))
        for seed, result in enumerate(device.stream(source, IN_FLIGHT)):
            wrong += not np.allclose(result.outputs["y"], example(seed=seed)["t0"] + 4)
            by_server += result.report.answered_by != "device"
            if seed == frames // 3:
                process.kill()
    return {"frames": frames, "answered": seed + 1, "wrong_or_out_of_order": wrong,
            "by_the_server": by_server}  # fmt: skip


def run() -> dict[str, Any]:
    from benchmarks.server_throughput import run as throughput

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = {
            "pipeline": pipeline(folder), "triton": triton(folder), "killed": killed(folder),
        }  # fmt: skip
    found["server"] = throughput(10.0, devices=4, in_flight=2)
    found["bars_met"] = {
        "pipeline": found["pipeline"]["ratio"] >= BAR_PIPELINE,
        "triton": found["triton"]["ratio"] >= BAR_TRITON,
        "killed": found["killed"]["answered"] == found["killed"]["frames"]
        and not found["killed"]["wrong_or_out_of_order"],
        "server": found["server"]["ratio"] >= BAR_SERVER,
    }
    return found


if __name__ == "__main__":
    serve()
