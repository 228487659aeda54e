"""Whether a model that somebody sent can be served: tried in a process with limits first.

`python -m cans.live.server.accepting.trying` reads one request (JSON) and writes one answer. It
loads the model, cuts it and runs both halves of a cut; a file that loops, crashes or eats memory
takes only that process down. What its trial showed lies in the cache, so that the server itself
does not run it again to load it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx

from cans.errors import CansError, ModelError, Refused
from cans.live.split import Cutting

_LEAST_MEMORY = 4 << 30  # of address space: libraries map more than they use


def try_apart(model: Path, cutting: Cutting, seconds: float) -> None:
    """Returns if it can be served; `Refused` says why not."""
    size = sum(each.stat().st_size for each in model.parent.rglob("*") if each.is_file())
    request = {"model": str(model), "cutting": asdict(cutting),
               "memory": _LEAST_MEMORY + 10 * size, "seconds": seconds}  # fmt: skip
    root = str(Path(__file__).parents[4])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "cans.live.server.accepting.trying"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
    )  # fmt: skip
    try:
        answer, _ = process.communicate(json.dumps(request).encode(), seconds)
    except subprocess.TimeoutExpired:
        raise Refused(f"the model took longer than {seconds:.0f} s to be tried") from None
    finally:
        _end(process)
    if process.returncode or not answer:
        raise Refused(f"the model crashed when it was tried (exit code {process.returncode})")
    failure = json.loads(answer).get("failure")
    if failure:
        raise Refused(f"the model cannot be served: {failure}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def main() -> None:
    import resource

    request = json.load(sys.stdin)
    memory, seconds = request["memory"], int(request["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    try:
        _try(Path(request["model"]), request["cutting"])
        answer = {}
    except CansError as error:
        answer = {"failure": str(error)[:500]}
    except MemoryError:
        answer = {"failure": "it needs too much memory"}
    except Exception as error:  # of onnx or the runtime, which have no common base
        answer = {"failure": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
    answers.write(json.dumps(answer))
    answers.flush()


def _try(path: Path, fields: dict[str, Any]) -> None:
    import numpy as np

    from cans.live.splitting import load_model, split
    from cans.models.run.inputs import random_inputs

    refuse_paths(path)
    pairs = {key: tuple((name, tuple(shape)) for name, shape in fields[key])
             for key in ("shapes", "lowest")}  # fmt: skip
    cutting = Cutting(**{**fields, **pairs})
    model = split(load_model(path, cutting), cutting)
    point = len(model.points) // 2
    front = model.executor.run_front(
        min(point, model.last - 1), random_inputs(model.inputs, np.random.default_rng(0))
    )
    model.executor.run_back(min(point, model.last - 1), front.crossing)


def refuse_paths(path: Path) -> None:
    """Weights may lie in files beside the model, where `Arriving` has put them; nothing else of a
    model may name a file."""
    from cans.models.onnx.file import open_file

    proto = open_file(path).proto
    graph = proto.graph
    beyond = [*graph.node, *graph.sparse_initializer, *proto.functions, *proto.training_info]
    for tensor in _tensors(beyond):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelError(f"tensor {tensor.name!r} inside a node names a file")


def _tensors(messages: list[Any]) -> list[onnx.TensorProto]:
    """Every tensor in these, however deep."""
    found, stack = [], list(messages)
    while stack:
        each = stack.pop()
        if isinstance(each, onnx.TensorProto):
            found.append(each)
            continue
        for field, value in each.ListFields():
            if field.message_type is not None:
                repeated = not hasattr(value, "ListFields")
                stack.extend(value if repeated else [value])
    return found


if __name__ == "__main__":
    main()
