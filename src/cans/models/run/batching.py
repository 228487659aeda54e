"""Back-ends of several requests in one run: the first dimension of a piece is made free.

Nothing is taken on trust. Many files fix the batch to one row, and in some models a row changes
what comes out for another; so a batch is compared with single runs before it is ever used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.run import background
from cans.models.run.inputs import random_inputs
from cans.models.run.slicing import Piece

Rows = Mapping[str, NDArray[Any]]
Made = dict[str, NDArray[Any]]

TOLERANCE = 1e-5  # of the largest value of an output
_ROUNDS, _SECONDS = 5, 2.0  # of timing, whichever ends first; the best of them counts, because
# others use this machine too
_SINGLES = 4  # runs of one row that are timed in each
_SCALES = (1.0, 0.3, 3.0)  # of the rows that are compared: what one does to another shows


def free_rows(piece: Piece, model: Model) -> Piece | None:
    """The piece for any number of rows; None: its inputs are not rows of one."""
    wanted = [model.tensors[name] for name in piece.inputs]
    if not wanted or any(each.shape[:1] != (1,) or each.lowest for each in wanted):
        return None
    proto = onnx.ModelProto()
    proto.CopyFrom(piece.proto)
    for each in proto.graph.input:
        each.type.tensor_type.shape.dim[0].dim_param = "rows"
    for each in proto.graph.output:
        each.type.tensor_type.ClearField("shape")
    for node in proto.graph.node:
        _free_reshape(node, proto.graph, model)
    return Piece(proto, piece.inputs, piece.outputs, piece.pack)


def _free_reshape(node: onnx.NodeProto, graph: onnx.GraphProto, model: Model) -> None:
    """A constant shape that begins with one row means however many there are."""
    if node.op_type != "Reshape" or node.input[1] not in model.constants:
        return
    source, made = (model.tensors.get(name) for name in (node.input[0], node.output[0]))
    if source is None or made is None or (source.shape[:1], made.shape[:1]) != ((1,), (1,)):
        return
    name = f"{node.output[0]}/rows"
    shape = np.array([-1, *made.shape[1:]], dtype=np.int64)
    graph.initializer.append(numpy_helper.from_array(shape, name))
    node.input[1] = name


def sizes_up_to(most: int) -> tuple[int, ...]:
    """How many requests may run together: few sizes, so that each is soon known.

    >>> sizes_up_to(8), sizes_up_to(6), sizes_up_to(1)
    ((2, 4, 8), (2, 4, 6), ())
    """
    doubled = [2**power for power in range(1, most.bit_length()) if 2**power <= most]
    return tuple(sorted({*doubled, *([most] if most > 1 else [])}))


def made_up(tensors: Sequence[Tensor], count: int) -> list[Made]:
    """So many requests, none like another."""
    rows = []
    for number in range(count):
        values = random_inputs(tensors, np.random.default_rng(number))
        scale = _SCALES[number % len(_SCALES)]
        rows.append({
            name: (scale * each).astype(each.dtype) if each.dtype.kind == "f" else each
            for name, each in values.items()
        })  # fmt: skip
    return rows


def joined(rows: Sequence[Rows]) -> Made:
    """One batch of several requests."""
    return {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}


def parted(made: Rows, count: int) -> list[Made] | None:
    """The outputs of each request of a batch; None: they are not one row of each."""
    if any(each.shape[:1] != (count,) for each in made.values()):
        return None
    return [{name: each[i : i + 1] for name, each in made.items()} for i in range(count)]


def agree(batch: Sequence[Rows] | None, singles: Sequence[Rows]) -> bool:
    """Whether a batch gave each request what it gets alone."""
    return batch is not None and all(
        _same(ours[name], alone[name])
        for ours, alone in zip(batch, singles, strict=True)
        for name in ours
    )


def _same(ours: NDArray[Any], alone: NDArray[Any]) -> bool:
    if ours.shape != alone.shape or ours.dtype != alone.dtype:
        return False
    if ours.dtype.kind != "f":
        return bool(np.array_equal(ours, alone))
    largest = float(np.max(np.abs(alone), initial=0.0))
    return bool(np.allclose(ours, alone, rtol=TOLERANCE, atol=TOLERANCE * largest))


def relative_times(
    single: Callable[[Rows], Made],
    together: Callable[[Rows], Made],
    rows: Sequence[Rows],
    sizes: Sequence[int],
) -> dict[int, float]:
    """Time of a batch over that of as many single runs, by size; empty: one of them differs."""
    alone = [single(each) for each in rows]
    batches = {size: joined(rows[:size]) for size in sizes}
    alone_s, best = float("inf"), dict.fromkeys(sizes, float("inf"))
    end = time.perf_counter() + _SECONDS
    for number in range(_ROUNDS):
        for size, batch in batches.items():
            if background.ending.is_set():
                return {}
            seconds, made = _timed(together, batch)
            best[size] = min(best[size], seconds)
            if number == 0 and not agree(parted(made, size), alone[:size]):
                return {}
        alone_s = min(alone_s, *(_timed(single, each)[0] for each in rows[:_SINGLES]))
        if time.perf_counter() > end:
            break
    return {size: best[size] / (size * alone_s) for size in sizes}


def _timed(run: Callable[[Rows], Made], values: Rows) -> tuple[float, Made]:
    start = time.perf_counter()
    made = run(values)
    return time.perf_counter() - start, made
