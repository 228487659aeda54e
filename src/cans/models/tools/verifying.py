"""Proof that a split model is the model: every cut is run and compared with the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from cans.errors import CansError, InputError, ModelError
from cans.models.codecs.codec import Codec, codec_at
from cans.models.codecs.image import ImageSpec, channel_axis, from_pixels
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.points import Point
from cans.models.run.executor import Executor
from cans.models.run.inputs import random_inputs
from cans.models.run.sessions import RuntimeOptions, first_line, open_session
from cans.models.run.slicing import assemble

Arrays = dict[str, NDArray[Any]]
TOLERANCE = 1e-5
_HALF_TOLERANCE = 5e-3  # a float16 tensor holds three digits


def verify(
    model: Model,
    points: Sequence[Point],
    codec: str = "float32",
    image: ImageSpec | None = None,
    samples: int = 1,
    given: Arrays | None = None,
    threads: int = 1,
) -> dict[str, Any]:
    """Error of every cut, relative to the largest output. Lossless: both ways of running it."""
    batches = [given] if given else [_inputs(model, image, seed) for seed in range(samples)]
    whole = [run_original(model, batch) for batch in batches]
    executor = Executor(model, points, threads=threads)
    rows = []
    for point in points:
        used = codec_at(codec, point.index, image)
        if used is None:
            continue
        runs = [run_split(executor, point, batch, used) for batch in batches]
        if not used.lossy:
            executor.prepare(point.index, calibrate=False)
            runs += [run_split(executor, point, batch, used) for batch in batches]
        references = whole * (len(runs) // len(whole))
        rows.append(_row(point, runs, references))
    tolerance = tolerance_of(whole[0], points)
    worst = max(row["max_error"] for row in rows)
    return {
        "model": model.name,
        "digest": model.digest,
        "codec": codec,
        "samples": len(batches),
        "tolerance": tolerance,
        "worst_error": worst,
        "ok": worst <= tolerance if codec == "float32" else None,
        "points": rows,
    }


def _row(point: Point, runs: list[tuple[Arrays, int]], references: list[Arrays]) -> dict[str, Any]:
    agreements = [
        top1_agreement(outputs, reference)
        for (outputs, _), reference in zip(runs, references, strict=True)
    ]
    known = [each for each in agreements if each is not None]
    return {
        "index": point.index,
        "name": point.name,
        "bytes": point.bytes,
        "encoded_bytes": runs[0][1],
        "max_error": max(
            error(outputs, reference)
            for (outputs, _), reference in zip(runs, references, strict=True)
        ),
        "top1_agreement": float(np.mean(known)) if known else None,
    }


def run_original(model: Model, inputs: Arrays) -> Arrays:
    """The untouched file where the runtime accepts it: our reading of it is under test too."""
    try:
        session = _original_session(model)
        return dict(zip(model.outputs, session.run(list(model.outputs), inputs), strict=True))
    except CansError:
        raise
    except Exception as failure:
        raise ModelError(
            f"the whole model does not run on these inputs ({first_line(failure)}); "
            "give real ones with --input FILE.npz"
        ) from None


def _original_session(model: Model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if model.source is not None:
        try:
            return ort.InferenceSession(
                str(model.source), options, providers=["CPUExecutionProvider"]
            )
        except Exception:  # e.g. two nodes of one name: harmless, but the runtime refuses the file
            pass
    piece = assemble(model, model.graph.nodes, model.graph.inputs, model.outputs)
    return open_session(piece, model.weights, RuntimeOptions()).handle


def run_split(executor: Executor, point: Point, inputs: Arrays, codec: Codec) -> tuple[Arrays, int]:
    """Front-end, over the wire format, back-end. Also the bytes that crossed."""
    front = executor.run_front(point.index, inputs)
    payloads = {name: codec.encode(value) for name, value in front.crossing.items()}
    crossing = {t.name: codec.decode(payloads[t.name], t.shape, t.dtype) for t in point.tensors}
    back = executor.run_back(point.index, crossing)
    return {**front.outputs, **back.outputs}, sum(map(len, payloads.values()))


def error(outputs: Mapping[str, NDArray[Any]], reference: Mapping[str, NDArray[Any]]) -> float:
    """Largest difference over all outputs, relative to the larger of 1 and the output's size."""
    worst = 0.0
    for name, wanted in reference.items():
        got = outputs[name]
        if not isinstance(wanted, np.ndarray) or wanted.dtype == object:
            if not np.array_equal(np.asarray(got, object), np.asarray(wanted, object)):
                return float("inf")
            continue
        if got.shape != wanted.shape:
            return float("inf")
        if not wanted.size:
            continue
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(b)
        if not np.array_equal(np.isfinite(a), finite):
            return float("inf")
        # Equal infinities and not-a-numbers are no error; the rest is compared.
        scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
        worst = max(worst, float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale)
    return worst


def tolerance_of(outputs: Arrays, points: Sequence[Point]) -> float:
    types = {t.dtype for point in points for t in point.tensors}
    types |= {value.dtype.name for value in outputs.values() if isinstance(value, np.ndarray)}
    return _HALF_TOLERANCE if "float16" in types else TOLERANCE


def top1_agreement(outputs: Arrays, reference: Arrays) -> float | None:
    """Share of rows whose largest entry is in the same place; None when no output is a score."""
    for name, wanted in reference.items():
        is_score = isinstance(wanted, np.ndarray) and np.issubdtype(wanted.dtype, np.floating)
        if is_score and wanted.ndim >= 1 and wanted.shape[-1] > 1 and wanted.size:
            same = outputs[name].argmax(axis=-1) == wanted.argmax(axis=-1)
            return float(np.mean(same))
    return None


def _inputs(model: Model, image: ImageSpec | None, seed: int) -> Arrays:
    generator = np.random.default_rng(seed)
    values = random_inputs(model.inputs, generator)
    if image is not None:
        first = model.inputs[0]
        values[first.name] = _picture(first, image, generator)
    return values


def _picture(tensor: Tensor, image: ImageSpec, generator: np.random.Generator) -> NDArray[Any]:
    """Soft blobs with a little grain, as 8-bit pixels: JPEG is not made for white noise."""
    if channel_axis(tensor.shape) is None:
        raise InputError(f"input {tensor.name!r} has the shape {list(tensor.shape)}: no picture")
    shape = tensor.shape
    pixels = np.full(shape, 128.0)
    for axis in range(1, 4):
        size = shape[axis]
        line = np.interp(np.linspace(0, 5, size), range(6), generator.uniform(-60, 60, 6))
        pixels += line.reshape([-1 if i == axis else 1 for i in range(4)])
    pixels += generator.normal(0, 4, shape)
    return from_pixels(np.clip(pixels, 0, 255).astype(np.uint8), image, tensor.dtype)
