"""Splitting: how fast all cuts of a model are ready, how much memory they take, what a cut costs.

Everything is a ratio to one plain ONNX Runtime session of the same file on the same machine, one
thread, measured in turns. Loading and memory are measured in fresh processes.

    python -m benchmarks.splitting            # prints, and writes benchmarks/results/splitting.json
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "splitting.json"
BARS = {"vgg16": 1.05, "resnet50": 1.05, "vit_b16": 1.05, "mobilenet_v2": 1.10}
ROUNDS = {"vgg16": 9, "resnet50": 15, "vit_b16": 9, "mobilenet_v2": 61}
REPEATS = 3


def memory_mb() -> dict[str, float]:
    rows = dict(
        line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    )
    return {
        key: int(rows[name].split()[0]) / 1024
        for key, name in (("resident", "Rss"), ("private", "Anonymous"))
    }


def child(kind: str, path: str) -> dict[str, float]:
    """In a process of its own: load, then run twice."""
    import onnxruntime as ort

    import cans.models.tools.verifying  # noqa: F401  imports are not what is measured
    from cans.models import Executor, find_points, load

    image = {"input": np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("f4")}
    before, start = memory_mb(), time.perf_counter()
    if kind == "whole":
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        def run() -> None:
            session.run(None, image)
    else:
        model = load(path)
        executor = Executor(model, find_points(model))
        executor.build()

        def run() -> None:
            executor.run_whole(image)

    seconds = time.perf_counter() - start
    loaded = memory_mb()
    run()
    run()
    after = memory_mb()
    return {
        "seconds": seconds,
        **{f"loaded_{k}_mb": loaded[k] - before[k] for k in before},
        **{f"after_runs_{k}_mb": after[k] - before[k] for k in before},
    }


def _fresh(kind: str, path: Path) -> dict[str, float]:
    call = f"child({kind!r}, {str(path)!r})"
    code = f"import json; from benchmarks.splitting import child; print(json.dumps({call}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def readiness(path: Path) -> dict[str, Any]:
    """Time and memory of all cuts against one whole-model session."""
    runs: dict[str, list[dict[str, float]]] = {"whole": [], "all_points": []}
    for _ in range(REPEATS):
        for kind, found in runs.items():
            found.append(_fresh(kind, path))
    middle = {
        kind: {key: round(median(run[key] for run in found), 3) for key in found[0]}
        for kind, found in runs.items()
    }
    whole, points = middle["whole"], middle["all_points"]
    return {
        **middle,
        "time_ratio": round(points["seconds"] / whole["seconds"], 3),
        "memory_ratio_loaded": _ratio(points, whole, "loaded_resident_mb"),
        "memory_ratio_after_runs": _ratio(points, whole, "after_runs_resident_mb"),
        "memory_added_mb_after_runs": round(
            points["after_runs_resident_mb"] - whole["after_runs_resident_mb"], 1
        ),
    }


def _ratio(a: dict[str, float], b: dict[str, float], key: str) -> float:
    return round(a[key] / b[key], 3)


def in_turns(one: Callable[[], float], other: Callable[[], float], rounds: int) -> float:
    """Median of other / one over neighbouring runs, the first place changing hands.

    Whatever else the machine does slows both of a pair.
    """
    ratios = []
    for i in range(rounds + 2):
        a, b = (one(), other()) if i % 2 else tuple(reversed((other(), one())))
        ratios.append(b / a)
    return round(median(ratios[2:]), 3)


def cut_cost(name: str, path: Path) -> dict[str, Any]:
    """Fused front-end + back-end over the whole model, in turns, median; and the chain's cost.

    Every point is measured. In use are those that policy `cans` ever pulls.
    """
    import onnxruntime as ort

    from cans.learning.arithmetic.viability import viable_choices
    from cans.models import Executor, PartitionTable, find_points, load

    model = load(path)
    points = find_points(model)
    executor = Executor(model, points)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    whole = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    image = {"input": np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("f4")}

    def seconds(run: Any) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def whole_seconds() -> float:
        return seconds(lambda: whole.run(None, image))

    def split_seconds(index: int) -> float:
        return seconds(lambda: executor.run_back(index, executor.run_front(index, image).crossing))

    ratios = {}
    for point in points:
        executor.prepare(point.index, calibrate=False)
        index = point.index
        ratios[point.name] = in_turns(whole_seconds, lambda i=index: split_seconds(i), ROUNDS[name])
    viable = viable_choices(PartitionTable.of(model, points))
    in_use = [point.name for point in points if viable[point.index]]
    chain = Executor(model, points, memory_budget=0)
    chain_ratio = in_turns(
        whole_seconds, lambda: seconds(lambda: chain.run_whole(image)), ROUNDS[name]
    )
    return {
        "points": ratios,
        "in_use": in_use,
        "worst_in_use": max(ratios[name] for name in in_use),
        "worst": max(ratios.values()),
        "chain": chain_ratio,
    }


def extract_model_seconds(path: Path) -> float:
    """`onnx.utils.extract_model`, one front-end and back-end, in the middle."""
    import onnx

    from cans.models import find_points, load

    points = find_points(load(path))
    middle = points[len(points) // 2].tensors[0].name
    output = onnx.load(path, load_external_data=False).graph.output[0].name
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        onnx.utils.extract_model(str(path), f"{folder}/front.onnx", ["input"], [middle])
        onnx.utils.extract_model(str(path), f"{folder}/back.onnx", [middle], [output])
    return time.perf_counter() - start


def inspect_cost(path: Path) -> dict[str, float]:
    """`cans inspect FILE`, wall time and peak memory of the process."""
    code = (
        "import resource, subprocess, sys; "
        f"subprocess.run([sys.executable, '-m', 'cans.cli', 'inspect', {str(path)!r}, '--json'],"
        " stdout=subprocess.DEVNULL, check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {
        "seconds": round(time.perf_counter() - start, 2),
        "peak_mb": round(float(done.stdout), 1),
    }


def run() -> dict[str, Any]:
    from cans.models import builtin
    from cans.models.builtin.weight_file import save

    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, bar in BARS.items():
            path = Path(folder) / f"{name}.onnx"
            save(builtin.build(name), path)
            print(f"{name} ...", file=sys.stderr)
            report[name] = {
                "ready": readiness(path),
                "cut_cost": {"bar": bar, **cut_cost(name, path)},
                "inspect": inspect_cost(path),
                "extract_model_one_pair_seconds": round(extract_model_seconds(path), 1),
            }
            path.unlink()
    return report


if __name__ == "__main__":
    result = run()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
