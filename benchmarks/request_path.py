"""What our request path adds to a request, against a raw socket that carries the same bytes.

    python -m benchmarks.request_path

A device sends tensors of five sizes to a server in another process whose back-end computes
nothing and answers with 4 KB. `ours_ms` is all of `Device.infer`: choose, encode, wire, decode,
answer; what it learns from the round comes after the answer. In the same run, in turns: a raw TCP
socket with the same bytes up and the same reply, and a stock Triton client on our own port.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

SIZES = {"8 KB": 2048, "151 KB": 37_632, "602 KB": 150_528, "3.2 MB": 802_816, "12.8 MB": 3_211_264}
"""In float32: 8 KB; a 224x224 picture as bytes, as floats; ResNet's and VGG's largest tensors."""
REPLY = 1000  # float32: the classes of ImageNet
TURNS = 60
FIXED_MS, FACTOR = 1.5, 2.5


def null_model(elements: int) -> Any:
    """A model that sends its input and gets 1000 numbers, with no work on either side."""
    from tests.live.toy import null

    return null(elements, REPLY)


def serve() -> None:
    """The other process: our server and the raw socket's peer."""
    import asyncio

    from cans.learning import policy_named
    from cans.live.memory import keep_memory
    from cans.live.server.server import EdgeServer, ServerOptions
    from cans.live.wire.terms import Terms

    _pin(1)
    keep_memory()  # as `cans serve` does
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_raw_peer, args=(listener,), daemon=True).start()
    models = [null_model(elements) for elements in SIZES.values()]
    options = ServerOptions(Terms(policy_named("offload")), listen="127.0.0.1:0", workers=1)

    async def main() -> None:
        async with EdgeServer(models, options) as server:
            print(server.port, listener.getsockname()[1], flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    asyncio.run(main())


def _raw_peer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reply = bytes(4 * REPLY)
    while True:
        head = connection.recv(8, socket.MSG_WAITALL)
        if len(head) < 8:
            return
        size = int.from_bytes(head, "little")
        buffer = memoryview(bytearray(size))  # a new one each time, as a server must have
        at = 0
        while at < size:
            at += connection.recv_into(buffer[at:])
        connection.sendall(reply)


def _raw_client(port: int) -> Callable[[np.ndarray], None]:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(array: np.ndarray) -> None:
        data = memoryview(array.reshape(-1).view(np.uint8))
        connection.sendall(data.nbytes.to_bytes(8, "little"))
        connection.sendall(data)
        left = 4 * REPLY
        while left:
            left -= len(connection.recv(left))

    return ask


def _triton_client(port: int, name: str) -> Callable[[np.ndarray], None] | None:
    try:
        import tritonclient.grpc as triton
    except ImportError:
        return None
    client = triton.InferenceServerClient(f"127.0.0.1:{port}")

    def ask(array: np.ndarray) -> None:
        tensor = triton.InferInput("t0", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        client.infer(name, [tensor]).as_numpy("y")

    return ask


def _pin(core: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


def _time(function: Callable[[np.ndarray], Any], array: np.ndarray) -> float:
    start = perf_counter()
    function(array)
    return (perf_counter() - start) * 1e3


def run(turns: int = TURNS) -> dict[str, Any]:
    """Medians over turns that alternate between the three."""
    from cans.live.device.hooked import HookedDevice as Device
    from cans.live.device.hooks import Hooks

    command = [sys.executable, "-m", "benchmarks.request_path", "serve"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert process.stdout is not None
    port, raw_port = map(int, process.stdout.readline().split())
    rows = []
    try:
        raw = _raw_client(raw_port)
        for label, elements in SIZES.items():
            array = np.random.default_rng(0).standard_normal((1, elements)).astype(np.float32)
            model = null_model(elements)
            triton = _triton_client(port, model.name)
            times: dict[str, list[float]] = {"raw": [], "ours": [], "triton": []}
            hooks = Hooks(hedge=False)  # a model without work is quicker here than anywhere
            with (
                tempfile.TemporaryDirectory() as folder,
                Device(f"127.0.0.1:{port}", model, "bench", state=folder, hooks=hooks) as device,
            ):
                for turn in range(turns + 5):
                    taken = {"raw": _time(raw, array), "ours": _time(device.infer, array)}
                    assert device.last is not None
                    assert not device.last.fallback, device.last.fallback
                    device.settle()
                    if triton is not None:
                        taken["triton"] = _time(triton, array)
                    if turn >= 5:
                        for name, value in taken.items():
                            times[name].append(value)
            medians = {name: statistics.median(each) for name, each in times.items() if each}
            allowed = FIXED_MS + FACTOR * medians["raw"]
            rows.append({
                "size": label,
                "bytes": 4 * elements,
                **{f"{name}_ms": round(value, 3) for name, value in medians.items()},
                "allowed_ms": round(allowed, 3),
                "within": medians["ours"] <= allowed,
            })  # fmt: skip
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)
    return {
        "benchmark": "request_path",
        "turns": turns,
        "bar": f"ours <= {FIXED_MS} ms + {FACTOR} x raw",
        "rows": rows,
        "pass": all(row["within"] for row in rows),
    }


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        serve()
        return
    result = run()
    target = Path(__file__).parent / "results" / "request_path.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
