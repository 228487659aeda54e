"""Mutated model files: every one loads, or is refused with an error that says so in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_networks import node, save, weight

from cans.errors import CansError
from cans.models import find_points, load
from cans.models.tools.describe import describe, json_text

CASES = 40


def _convolutions(folder: Path) -> Path:
    nodes = [node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node("Sigmoid", ["a"], "s")]
    nodes += [node("Mul", ["a", "s"], "b"), node("Shape", ["b"], "shape")]
    nodes += [node("Reshape", ["b", "shape"], "r"), node("Conv", ["r", "w"], "c")]
    nodes += [node("Flatten", ["c"], "f"), node("Gemm", ["f", "m"], "out")]
    extra = [weight("w", 4, 4, 3, 3), weight("m", 144, 10)]
    return save(folder / "convolutions.onnx", nodes, {"x": [1, 4, 8, 8]}, ["out"], extra)


def _recurrent(folder: Path) -> Path:
    nodes = [node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=8)]
    nodes += [node("Squeeze", ["y", "one"], "s"), node("MatMul", ["s", "m"], "out")]
    one = weight("one", 1)
    one.CopyFrom(_integer("one", 1))
    extra = [weight("w", 1, 32, 6), weight("r", 1, 32, 8), one, weight("m", 8, 3)]
    return save(folder / "recurrent.onnx", nodes, {"x": [5, 1, 6]}, ["out", "h"], extra)


def _integer(name: str, value: int):
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array([value], np.int64), name)


@pytest.mark.parametrize("make", [_convolutions, _recurrent])
@pytest.mark.parametrize("seed", range(3))
def test_a_mutated_file_is_read_or_refused(tmp_path: Path, make, seed: int) -> None:
    data = make(tmp_path).read_bytes()
    random = np.random.default_rng(seed)
    loaded = 0
    for case in range(CASES):
        path = tmp_path / f"{case}.onnx"
        path.write_bytes(_mutated(data, random))
        failure = _inspected(path)
        loaded += failure is None
        assert failure is None or (failure.exit_code == 2 and "\n" not in str(failure))
        path.unlink()
    assert 0 < loaded < CASES


def _inspected(path: Path) -> CansError | None:
    try:
        model = load(path)
        json_text(describe(model, find_points(model, max_tensors=2)))
    except CansError as error:
        return error
    return None


def _mutated(data: bytes, random: np.random.Generator) -> bytes:
    """A few bytes changed, removed, doubled, near the ends: between them lie weights."""
    changed = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        edge = int(random.integers(0, min(400, len(changed))))
        at = edge if random.random() < 0.5 else len(changed) - 1 - edge
        kind = random.integers(0, 4)
        if kind == 0:
            changed[at] ^= 1 << int(random.integers(0, 8))
        elif kind == 1:
            changed[at] = int(random.integers(0, 256))
        elif kind == 2:
            del changed[at : at + int(random.integers(1, 5))]
        else:
            changed[at:at] = changed[at : at + int(random.integers(1, 20))]
    return bytes(changed)
