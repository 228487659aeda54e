"""What this layer needs of the models layer, and nothing more: a seam that tests can stand in for.

`cans.models.Executor` fits these shapes as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from cans.learning import PartitionTable
from cans.models.codecs.codec import Codec as Codec

Array = NDArray[Any]
Arrays = Mapping[str, Array]
BlockHook = Callable[[str, float, float], None]
WholeRun = Callable[[Arrays], dict[str, Array]]


class TensorSpec(Protocol):
    """A tensor before it exists."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    def fits(self, shape: tuple[int, ...]) -> bool: ...


class CutPoint(Protocol):
    """A cut: what crosses there, and which outputs the front-end has already made."""

    @property
    def name(self) -> str: ...
    @property
    def tensors(self) -> Sequence[TensorSpec]: ...
    @property
    def outputs(self) -> Sequence[str]: ...


class HalfRun(Protocol):
    """How a half was run, for whoever learns from its time."""

    @property
    def seconds(self) -> float: ...
    @property
    def steady_seconds(self) -> float: ...
    @property
    def settled(self) -> bool: ...
    @property
    def outputs(self) -> dict[str, Array]: ...


class FrontRun(HalfRun, Protocol):
    @property
    def crossing(self) -> dict[str, Array]: ...


class HalfRunner(Protocol):
    """Runs either half of any point, and from one point on to a later one."""

    on_block: BlockHook | None

    @property
    def points(self) -> Sequence[CutPoint]: ...
    def run_front(self, point_index: int, inputs: Arrays) -> FrontRun: ...
    def run_on(self, point_index: int, to_index: int, crossing: Arrays) -> FrontRun: ...
    def run_back(self, point_index: int, crossing: Arrays) -> HalfRun: ...
    def run_together(self, point_index: int, crossings: Sequence[Arrays]) -> Sequence[HalfRun]: ...
    def try_batches(self, point_index: int, most: int) -> dict[int, float]: ...
    def continue_locally(self, point_index: int, crossing: Arrays) -> HalfRun: ...
    def prepare_in_background(self, point_index: int, sides: Sequence[str] = ...) -> object: ...
    def prepare(
        self, point_index: int, sides: Sequence[str] = ..., calibrate: bool = ...
    ) -> bool: ...
    def ready(self, point_index: int, side: str = ...) -> bool: ...
    def whole_run(self) -> WholeRun | None: ...
    @property
    def building(self) -> bool: ...


@dataclass(frozen=True)
class Cutting:
    """How a model is cut; both sides must do it alike."""

    max_tensors: int = 1  # that may cross at one point
    max_points: int | None = None  # None: all there are
    image: str = ""  # "MEAN/STD" where the input is a normalised picture
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()  # of inputs that the file leaves open
    lowest: tuple[tuple[str, tuple[int, ...]], ...] = ()  # the same where they vary up to those


@dataclass(frozen=True)
class ModelFile:
    """A file that devices can fetch."""

    name: str  # relative to the model's folder
    path: Path
    size: int
    sha256: str


class RowsOfTheMoment(Protocol):
    """The learner's rows for inputs of any size."""

    def at(self, table: PartitionTable, inputs: Arrays) -> PartitionTable:
        """The rows of these inputs, on the scale of the server's table."""


@dataclass(frozen=True)
class SplitModel:
    """A model that can be run in halves, with all that both sides must agree on."""

    name: str
    digest: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    executor: HalfRunner
    table: PartitionTable
    codecs: Mapping[tuple[int, str], Codec]  # by point and name
    files: tuple[ModelFile, ...] = ()  # what FetchModel sends: the model file first
    cutting: Cutting = field(default_factory=Cutting)
    rows: RowsOfTheMoment | None = None  # None: the size of the input never varies
    made: tuple[TensorSpec, ...] = ()  # outputs whose type and shape are known before a run

    @property
    def points(self) -> Sequence[CutPoint]:
        return self.executor.points

    @property
    def last(self) -> int:
        """The point where everything has run on the device."""
        return len(self.executor.points) - 1
