"""The process that tries a model: `python -m cans.models.onnx.trial_process`.

It reads one request per line and writes one answer per line (JSON), and ends when nothing was asked
for a while or its parent is gone. A model that loops, crashes or eats memory takes only it down.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

_IDLE_SECONDS = 10.0


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    while select.select([sys.stdin], [], [], _IDLE_SECONDS)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        try:
            answer = _try(json.loads(line))
        except Exception as error:  # the runtime's errors have no common base
            answer = {"failure": " ".join(str(error).split()) or type(error).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _try(request: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    import onnxruntime as ort

    _limit_memory(request["memory"])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if request["folder"]:
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, request["folder"])
    with open(request["model"], "rb") as file:
        session = ort.InferenceSession(file.read(), options, providers=["CPUExecutionProvider"])
    runs: list[dict[str, Any]] = []
    failure = ""
    for path in request["inputs"]:
        if len(runs) == request["enough"]:
            break
        with np.load(path) as values:
            feed = {name: values[f"arr_{i}"] for i, name in enumerate(request["fed"])}
        try:
            found = session.run(request["names"], feed)
        except Exception as error:
            failure = failure or " ".join(str(error).split())
            if request["enough"] == len(request["inputs"]):
                return {"failure": failure}  # all of them are wanted
            continue
        runs.append(dict(zip(request["names"], map(_described, found), strict=True)))
    return {"runs": runs} if runs else {"failure": failure}


def _described(value: Any) -> Any:
    """The numbers of a small integer vector (a shape); shape and type of any other array."""
    import numpy as np

    if not isinstance(value, np.ndarray):
        return None
    numbers = value.tolist() if value.dtype == np.int64 and value.ndim == 1 else []
    return {"shape": value.shape, "dtype": value.dtype.name, "numbers": numbers[:16]}


def _limit_memory(budget: int) -> None:
    """Address space beyond what is in use now; where the system cannot say, no limit."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (used + budget, hard))
    except (ImportError, OSError, ValueError):
        pass


if __name__ == "__main__":
    main()
