"""A toy model in NumPy with the shape of the models layer: fast, exact, and as slow as asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cans.errors import InputError
from cans.learning import PartitionTable
from cans.live.split import Array, Arrays, BlockHook, SplitModel
from cans.live.wire.terms import table_version
from cans.models import get_codec


@dataclass(frozen=True)
class ToyTensor:
    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    def fits(self, shape: tuple[int, ...]) -> bool:
        return shape == self.shape


@dataclass(frozen=True)
class ToyPoint:
    name: str
    tensors: tuple[ToyTensor, ...]
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToyRun:
    outputs: dict[str, Array]
    crossing: dict[str, Array] = field(default_factory=dict)
    seconds: float = 0.001
    settled: bool = True

    @property
    def steady_seconds(self) -> float:
        return self.seconds


class ToyExecutor:
    """y = x + number of layers, one block per layer."""

    def __init__(
        self, size: int, layers: int, block_seconds: float = 0.0, names: Sequence[str] = ()
    ) -> None:
        names = names or [f"p{i}" for i in range(layers + 1)]
        tensors = [ToyTensor(f"t{i}", (1, size)) for i in range(layers)]
        self.points: Sequence[ToyPoint] = [
            *(ToyPoint(name, (tensor,)) for name, tensor in zip(names, tensors, strict=False)),
            ToyPoint(names[-1], (), ("y",)),
        ]
        self.on_block: BlockHook | None = None
        self.block_seconds = block_seconds
        self.size = size
        self.runs = 0

    def _run(self, value: Array, first: int, last: int) -> tuple[Array, float]:
        start = time.perf_counter()
        for i in range(first, last):
            if self.block_seconds:
                time.sleep(self.block_seconds)
            value = value + np.float32(1)
            if self.on_block is not None:
                self.on_block(f"b{i}", 0.0, 0.0)
        self.runs += 1
        return value, time.perf_counter() - start

    building = False

    def whole_run(self) -> None:
        """No: every run counts its blocks."""

    def run_front(self, point_index: int, inputs: Arrays) -> ToyRun:
        value = inputs.get("t0")
        if value is None or value.shape != (1, self.size) or value.dtype != np.float32:
            raise InputError("input 't0' is missing or of another shape")
        value, seconds = self._run(value, 0, point_index)
        if point_index == len(self.points) - 1:
            return ToyRun({"y": value}, seconds=seconds)
        return ToyRun({}, {f"t{point_index}": value}, seconds)

    def run_on(self, point_index: int, to_index: int, crossing: Arrays) -> ToyRun:
        value, seconds = self._run(crossing[f"t{point_index}"], point_index, to_index)
        return ToyRun({}, {f"t{to_index}": value}, seconds)

    def run_back(self, point_index: int, crossing: Arrays) -> ToyRun:
        value, seconds = self._run(crossing[f"t{point_index}"], point_index, len(self.points) - 1)
        return ToyRun({"y": value}, seconds=seconds)

    continue_locally = run_back

    def prepare_in_background(self, point_index: int, sides: Sequence[str] = ()) -> object:
        return None

    def ready(self, point_index: int, side: str = "front") -> bool:
        return True


def toy(
    size: int = 64, layers: int = 4, block_seconds: float = 0.0, table: PartitionTable | None = None
) -> SplitModel:
    """A model of so many layers; its table says that each costs the same."""
    if table is not None:
        layers = len(table.points) - 1
    executor = ToyExecutor(size, layers, block_seconds, table.points if table else ())
    steps = np.arange(layers + 1.0)
    if table is None:
        table = PartitionTable(
            "toy",
            [point.name for point in executor.points],
            front=steps[:, None],
            link=np.where(steps < layers, 1.0, 0.0)[:, None],
            server=(layers - steps)[:, None],
            digest=f"toy-{size}-{layers}",
        )
    table = replace(table, version=table_version(table, executor.points))
    return SplitModel(
        "toy", table.digest, (ToyTensor("t0", (1, size)),), ("y",), executor, table,
        {(i, "float32"): get_codec("float32") for i in range(layers)},
        made=(ToyTensor("y", (1, size)),),
    )  # fmt: skip


def example(size: int = 64, seed: int = 0) -> dict[str, Any]:
    return {"t0": np.random.default_rng(seed).standard_normal((1, size)).astype(np.float32)}


class NullExecutor(ToyExecutor):
    """Two points and no work: the input crosses, a short answer comes back."""

    def __init__(self, size: int, answer: int) -> None:
        super().__init__(size, 1)
        self._answer = np.zeros((1, answer), np.float32)

    def run_back(self, point_index: int, crossing: Arrays) -> ToyRun:
        assert crossing["t0"].shape == (1, self.size)
        return ToyRun({"y": self._answer}, seconds=0.0)

    continue_locally = run_back


def null(size: int, answer: int) -> SplitModel:
    """A model that costs nothing but its transport."""
    model = toy(size, 1)
    executor = NullExecutor(size, answer)
    table = replace(model.table, digest=f"null-{size}")
    made = (ToyTensor("y", (1, answer)),)
    return replace(
        model, name=f"null-{size}", digest=table.digest, executor=executor, table=table, made=made
    )
