"""Shapes are believed only when the model has run: a trial in a process of its own.

Shape inference may be wrong, a graph may be invalid, a loop endless. So a model file is run once on
made-up inputs before anything else is done with it, in a process with limits of time and memory,
and what every tensor's shape was is kept. The answer lies in the cache folder for the next time.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import NodeProto, helper

from cans.cache import cache_folder
from cans.errors import ModelError
from cans.models.onnx.tensors import CROSSING_TYPES
from cans.models.onnx.weights import Weights, refer_to_files
from cans.models.run import background

SECONDS = 60.0  # for a small model; more for one with much data to move
_BYTES_PER_SECOND = 10e6
_LEAST_MEMORY = 2 << 30
_FORMAT = 3  # of what is cached
_SUFFIX = "/shape, by cans"  # which no tensor of a file is called
_LOOK_SECONDS = 0.1  # whether the time is over, or the program


class _NoEnd(ModelError):
    """A run was given up."""


@dataclass(frozen=True)
class Traced:
    """What a run showed: shapes that stayed the same whatever the input, and what did not."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    varying: frozenset[str] = frozenset()  # the shape depends on the values


def try_model(
    proto: onnx.ModelProto, weights: Weights, inputs: Sequence[Mapping[str, NDArray[Any]]]
) -> Traced:
    """Run a model on the first two of these inputs that it accepts; `ModelError` says why not."""
    types = _types(proto)
    made = [name for node in proto.graph.node for name in node.output if name]
    shown = [name for name in made if types.get(name)]
    unknown = [name for name in made if name not in types]
    outputs = [each.name for each in proto.graph.output if each.name in set(made)]
    try:
        answer = _run(proto, weights, inputs, shown, unknown)
    except _NoEnd:
        raise  # questions about shapes keep nothing from ending: do not wait as long again
    except ModelError:
        # Perhaps the questions about shapes are at fault: does the model itself run?
        answer = _run(proto, weights, inputs, (), outputs)
    return _compared(answer, types)


def try_sizes(
    proto: onnx.ModelProto, weights: Weights, inputs: Sequence[Mapping[str, NDArray[Any]]]
) -> tuple[list[dict[str, tuple[int, ...]]], dict[str, str]]:
    """Run a model on every one of these inputs, of different sizes: the shapes of its tensors in
    each run, and their types."""
    types = _types(proto)
    shown = [n for node in proto.graph.node for n in node.output if types.get(n)]
    unknown = [n for node in proto.graph.node for n in node.output if n and n not in types]
    answer = _run(proto, weights, inputs, shown, unknown, len(inputs))
    runs = [_shapes_in(run) for run in answer["runs"]]
    return runs, dict(_compared(answer, types).dtypes)


def cached(digest: str, shapes: Mapping[str, tuple[int, ...]]) -> Path:
    """Where the trial of a file at these shapes is kept."""
    text = json.dumps([_FORMAT, ort.__version__, digest, sorted(shapes.items())])
    return cache_folder("trials") / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def read_cached(path: Path) -> Traced | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        shapes = {name: tuple(shape) for name, shape in found["shapes"].items()}
        return Traced(shapes, found["dtypes"], frozenset(found["varying"]))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def write_cached(path: Path, traced: Traced) -> None:
    document = {**asdict(traced), "varying": sorted(traced.varying)}
    with (
        suppress(OSError),
        tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file,
    ):
        json.dump(document, file)
        file.close()
        os.replace(file.name, path)


def _types(proto: onnx.ModelProto) -> dict[str, str]:
    """The type of each tensor that inference knows one of; empty for what cannot be sent."""
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    return {
        each.name: CROSSING_TYPES.get(each.type.tensor_type.elem_type, "")
        for each in (*inferred.value_info, *inferred.output)
        if each.type.WhichOneof("value")
    }


def _run(
    proto: onnx.ModelProto,
    weights: Weights,
    inputs: Sequence[Mapping[str, NDArray[Any]]],
    shown: Sequence[str],
    unknown: Sequence[str],
    enough: int = 2,
) -> dict[str, Any]:
    instrumented = onnx.ModelProto()
    instrumented.CopyFrom(proto)
    graph = instrumented.graph
    folder = refer_to_files(graph.initializer, weights)
    # The shape of a tensor is a few bytes; the tensor itself can go as soon as nobody reads it.
    graph.node.extend(_shape_node(name) for name in shown)
    names = [*(name + _SUFFIX for name in shown), *unknown]
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    moved = sum(each.length for each in weights.all()) + _activation_bytes(inputs)
    seconds = SECONDS + moved / _BYTES_PER_SECOND
    with tempfile.TemporaryDirectory(prefix="cans-trial-") as place:
        model = Path(place) / "model"
        model.write_bytes(instrumented.SerializeToString())
        files = [str(Path(place) / f"{i}.npz") for i in range(len(inputs))]
        fed = list(inputs[0]) if inputs else []  # by number in the files: an input may be "file"
        for file, values in zip(files, inputs, strict=True):
            np.savez(file, *(values[name] for name in fed))
        request = {
            "model": str(model), "folder": "" if folder is None else str(folder),
            "inputs": files, "fed": fed, "names": names, "enough": enough,
            "memory": max(_LEAST_MEMORY, 6 * moved),
        }  # fmt: skip
        answer = _worker.ask(request, seconds)
    if answer is None:
        raise _NoEnd(f"no end after {seconds:.0f} s")
    if "failure" in answer:
        raise ModelError(str(answer["failure"]))
    return answer


def _shape_node(name: str) -> NodeProto:
    return helper.make_node("Shape", [name], [name + _SUFFIX])


def _activation_bytes(inputs: Sequence[Mapping[str, NDArray[Any]]]) -> int:
    """A guess from the inputs: activations of common networks are up to fifty times as large."""
    return 50 * sum(each.nbytes for each in inputs[0].values()) if inputs else 0


def _compared(answer: dict[str, Any], types: Mapping[str, str]) -> Traced:
    runs = [_shapes_in(run) for run in answer["runs"]]
    dtypes = {
        name: value["dtype"]
        for name, value in answer["runs"][0].items()
        if value and not name.endswith(_SUFFIX)
    }
    first = runs[0]
    varying = {name for name in first if any(run.get(name) != first[name] for run in runs)}
    return Traced(
        {name: shape for name, shape in first.items() if name not in varying},
        {**types, **dtypes},
        frozenset(varying),
    )


def _shapes_in(run: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    found = {}
    for name, value in run.items():
        if value is None:
            continue
        if name.endswith(_SUFFIX):
            found[name.removesuffix(_SUFFIX)] = tuple(value["numbers"])
        else:
            found[name] = tuple(value["shape"])
    return found


class _Worker:
    """The process that tries models; started when needed, ends by itself when idle."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None when there was none in time. A crash is an answer too."""
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            for fresh in (False, True):  # an idle one may end just now
                process = self._running(fresh)
                assert process.stdin is not None
                try:
                    process.stdin.write(line)
                    process.stdin.flush()
                except OSError:
                    continue
                answer = self._answer(process, seconds)
                if answer is None or answer:
                    return answer
                if fresh:
                    break
            return {"failure": f"ONNX Runtime crashed (exit code {self._end()})"}

    def _answer(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any] | None:
        assert process.stdout is not None
        until = monotonic() + seconds
        while not select.select([process.stdout], [], [], _LOOK_SECONDS)[0]:
            if monotonic() > until or background.ending.is_set():
                self._end()
                return None
        line = process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def _running(self, fresh: bool) -> subprocess.Popen[bytes]:
        if fresh or (self._process is not None and self._process.poll() is not None):
            self._end()
        if self._process is None:
            root = str(Path(__file__).parents[3])
            paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cans.models.onnx.trial_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
            )
        return self._process

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        return process.wait()

    def close(self) -> None:
        background.ending.set()  # for a thread that waits for an answer
        with self._lock:
            self._end()


_worker = _Worker()
atexit.register(_worker.close)
