"""A session that stays local, against a bare onnxruntime session on the same file.

Bar: `cans.InferenceSession.run` takes at most 3 % or 0.3 ms longer. The two take turns, run by run;
medians count. Two ways to stay local: no server answers, and a server that is there but may not be
used (the device decides, and runs the whole model itself).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import cans
from cans.learning.constraints import Constraints
from cans.live.split import Cutting
from cans.live.splitting import load_model, split

RUNS = 300
BAR_SHARE, BAR_MS = 0.03, 0.3


def network(path: Path, layers: int = 4) -> Path:
    """Convolutions, about ten milliseconds of them."""
    generator = np.random.default_rng(0)
    names = ["x", *(f"t{i}" for i in range(2 * layers))]
    nodes, weights = [], []
    for i in range(layers):
        values = generator.standard_normal((48, 48, 3, 3)).astype(np.float32) / 20
        weights.append(numpy_helper.from_array(values, f"w{i}"))
        before, middle, after = names[2 * i], names[2 * i + 1], names[2 * i + 2]
        nodes.append(helper.make_node("Conv", [before, f"w{i}"], [middle], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [middle], [after]))
    shape = [1, 48, 56, 56]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", names[-1])]
    graph = helper.make_graph(nodes, "bench", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def alternate(bare: Any, ours: Any, feed: dict[str, Any]) -> tuple[float, float]:
    """Median milliseconds of both."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(RUNS):
        for which in (0, 1) if number % 2 else (1, 0):
            began = perf_counter()
            (bare, ours)[which].run(None, feed)
            times[which].append((perf_counter() - began) * 1e3)
    return median(times[0][60:]), median(times[1][60:])


def run() -> dict[str, Any]:
    from tests.live.running import running

    one_thread = ort.SessionOptions()
    one_thread.intra_op_num_threads = 1
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = network(Path(folder) / "bench.onnx")
        bare = ort.InferenceSession(path, one_thread)
        shape = [each if isinstance(each, int) else 1 for each in bare.get_inputs()[0].shape]
        values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        feed = {bare.get_inputs()[0].name: values}
        state = {"state": Path(folder) / "state"}
        alone = cans.InferenceSession(
            path, one_thread, server="127.0.0.1:9", connect_seconds=0.2, **state
        )
        result["no_server"] = judged(*alternate(bare, alone, feed))
        alone.close()
        with running(split(load_model(path, Cutting()), Cutting())) as server:
            stays = Constraints(min_local_depth=10**6)
            ours = cans.InferenceSession(
                path, one_thread, server=server.address, constraints=stays, **state
            )
            assert ours.local_because == ""
            result["server_not_used"] = judged(*alternate(bare, ours, feed))
            assert ours.last is not None
            ours.close()
    result["bars_met"] = {
        name: each["added_share"] <= BAR_SHARE or each["added_ms"] <= BAR_MS
        for name, each in result.items()
    }
    return result


def judged(bare: float, ours: float) -> dict[str, float]:
    added = ours - bare
    return {"bare_ms": bare, "session_ms": ours, "added_ms": added, "added_share": added / bare}
