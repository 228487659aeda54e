"""Front on one provider, back on another: OpenVINO on the CPU and the plain runtime, in turns.

The normal case of a fleet: device and server have different accelerators. No bar; what is measured
is that a mixed split takes what its halves take (the sum of each on its own provider), and by how
much its answers differ from the plain runtime's. The OpenVINO build cannot live beside the plain
one: it gets an environment in the cache, which is made once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from cans.cache import cache_folder

NEEDED = ("onnxruntime-openvino", "onnx", "numpy", "grpcio", "zstandard", "typer", "rich")
MODELS = ("resnet50", "mobilenet_v2")
PROVIDERS = {"plain": "cpu", "openvino": "openvino,device_type=CPU,num_of_threads=1"}
TURNS = 12
TOLERANCE = 1e-3


def environment() -> Path:
    """The Python of an environment with the OpenVINO build."""
    folder = cache_folder("openvino")
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *NEEDED], check=True)
        (folder / "ready").touch()
    return python


def measure(name: str) -> dict[str, Any]:
    """In that environment: medians of one model, every pair of providers at three cuts."""
    import numpy as np

    from cans.models import Executor, RuntimeOptions, find_points, load
    from cans.models.tools.comparing import error

    model = load(name)
    points = find_points(model, max_points=5)
    executors = {
        each: Executor(model, points, RuntimeOptions.parse([how], 1))
        for each, how in PROVIDERS.items()
    }
    first = model.inputs[0]
    image = np.random.default_rng(0).random(first.shape, np.float32)
    whole = executors["plain"].run_whole({first.name: image})
    for each, point in product(executors.values(), points):
        each.prepare(point.index, calibrate=False)
    times: dict[str, list[float]] = {}
    worst = 0.0
    for _, point in product(range(TURNS), points):
        for front, back in product(executors, repeat=2):
            head = executors[front].run_front(point.index, {first.name: image})
            ms, outputs = head.seconds * 1e3, dict(head.outputs)
            label = f"{point.name}: {front} -> {back}"
            if point is points[-1]:
                label = f"whole: {front}"
            else:
                tail = executors[back].run_back(point.index, head.crossing)
                ms, outputs = ms + tail.seconds * 1e3, outputs | tail.outputs
            times.setdefault(label, []).append(ms)
            worst = max(worst, error(outputs, whole))
    ms = {label: median(each) for label, each in times.items()}
    slower = max(ms["whole: plain"], ms["whole: openvino"])
    mixed = [
        ms[each] for each in ms if each.endswith((": plain -> openvino", ": openvino -> plain"))
    ]
    return {"ms": ms, "mixed_over_slower_whole": median(mixed) / slower, "worst_error": worst}


def run() -> dict[str, Any]:
    python = environment()
    root = Path(__file__).parent.parent
    paths = os.pathsep.join([str(root), str(root / "src")])
    found = {}
    for name in MODELS:
        command = [python, "-m", "benchmarks.providers", name]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONPATH": paths},
        )  # fmt: skip
        found[name] = json.loads(done.stdout.splitlines()[-1])
    within = all(each["worst_error"] <= TOLERANCE for each in found.values())
    return {**found, "bars_met": {"split_within_1e-3": within}}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
