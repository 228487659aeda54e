"""Sizes that vary: what rows of the moment cost, and what a thousand sizes leave in memory.

`python -m benchmarks varying` compares in one run: rows of a seen and of a new size, and resident
memory after a thousand sizes with that after as many runs at the largest one, in fresh processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROWS_SEEN_US, ROWS_NEW_MS, MEMORY = 50.0, 2.0, 1.1  # what must hold
TOKENS = 1024
LAYERS = 6


def encoder(path: Path) -> Path:
    """An attention encoder for texts of any length."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save_model

    random = np.random.default_rng(0)
    names = ("q", "k", "v", "o")
    weights = [
        numpy_helper.from_array((random.standard_normal((256, 256)) / 16).astype("f4"), f"{n}{i}")
        for i in range(LAYERS)
        for n in names
    ]
    table = random.standard_normal((500, 256)).astype("f4")
    weights.append(numpy_helper.from_array(table, "table"))
    nodes = [helper.make_node("Gather", ["table", "ids"], ["h0"])]
    for i in range(LAYERS):
        steps = [
            ("MatMul", [f"h{i}", f"q{i}"], f"Q{i}"), ("MatMul", [f"h{i}", f"k{i}"], f"K{i}"),
            ("MatMul", [f"h{i}", f"v{i}"], f"V{i}"), ("Transpose", [f"K{i}"], f"T{i}"),
            ("MatMul", [f"Q{i}", f"T{i}"], f"S{i}"), ("Softmax", [f"S{i}"], f"P{i}"),
            ("MatMul", [f"P{i}", f"V{i}"], f"A{i}"), ("MatMul", [f"A{i}", f"o{i}"], f"O{i}"),
            ("Add", [f"O{i}", f"h{i}"], f"h{i + 1}"),
        ]  # fmt: skip
        for kind, inputs, output in steps:
            more = {"perm": [0, 2, 1]} if kind == "Transpose" else {}
            nodes.append(helper.make_node(kind, inputs, [output], **more))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "L"])
    out = helper.make_tensor_value_info(f"h{LAYERS}", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "encoder", [ids], [out], weights)
    opset = [helper.make_opsetid("", 17)]
    save_model(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def _loaded(path: Path) -> tuple[Any, Any]:
    from cans.models import find_points, load

    model = load(path, {"ids": (1, TOKENS)}, lowest={"ids": (1, 8)})
    return model, find_points(model)


def rows(path: Path) -> dict[str, float]:
    import numpy as np

    from cans.models import SizedTable

    table = SizedTable(*_loaded(path), codecs=("float32", "uint8"))
    inputs = [{"ids": np.zeros((1, length), np.int64)} for length in range(8, 208)]
    times = []
    for _ in range(2):
        for each in inputs:
            start = perf_counter()
            table.at(each)
            times.append(perf_counter() - start)
    half = len(inputs)
    return {"rows_new_ms": 1e3 * median(times[:half]), "rows_seen_us": 1e6 * median(times[half:])}


def resident_mb(path: Path, what: str) -> float:
    """In this process, after halves of three points ran a thousand times."""
    import numpy as np

    from cans.models import Executor

    executor = Executor(*_loaded(path))
    random = np.random.default_rng(0)
    last = len(executor.points) - 1
    for number in range(1000):
        length = TOKENS if what == "largest" or number == 0 else int(random.integers(8, 129))
        if what == "largest" and number > 20:
            break  # it does not grow any more, and would take minutes
        point = (1, last // 2, last - 1)[number % 3]
        front = executor.run_front(point, {"ids": random.integers(0, 500, (1, length))})
        executor.run_back(point, front.crossing)
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(each for each in file if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def run() -> dict[str, Any]:
    """Times, memory, and whether all bars hold."""
    with tempfile.TemporaryDirectory() as folder:
        path = encoder(Path(folder) / "encoder.onnx")
        found: dict[str, Any] = rows(path)
        for what in ("largest", "thousand"):
            command = [sys.executable, "-m", "benchmarks.varying", str(path), what]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[f"resident_{what}_mb"] = float(done.stdout)
    found["memory_ratio"] = found["resident_thousand_mb"] / found["resident_largest_mb"]
    found["bars_met"] = {
        "rows_seen": found["rows_seen_us"] <= ROWS_SEEN_US,
        "rows_new": found["rows_new_ms"] <= ROWS_NEW_MS,
        "memory": found["memory_ratio"] <= MEMORY,
    }
    return found


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(resident_mb(Path(sys.argv[1]), sys.argv[2]))
    else:
        print(json.dumps(run(), indent=1))
