"""Running either half of any point: a chain of blocks for all, fused halves for those in use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import median
from threading import Lock, Thread
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from cans.errors import InputError, ModelError, RunError
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.points import Point
from cans.models.run import background, batching
from cans.models.run.half_cache import BACK, BATCH, FRONT, Dedicated, HalfCache, Key
from cans.models.run.inputs import random_inputs
from cans.models.run.runtime import RuntimeOptions
from cans.models.run.sessions import Session, open_session
from cans.models.run.slicing import assemble, constant_outputs, cut_out

Arrays = Mapping[str, NDArray[Any]]
BlockHook = Callable[[str, float, float], None]  # name of the block, its thread and wall seconds
_SETTLING = 2  # runs after a switch that are not typical: cold caches, memory being reserved
_CALIBRATION = 3


Stretch = tuple[str | int, int]  # a half (side, point), or what lies between two points


class Implementation(NamedTuple):
    """The sessions that run a stretch of the model, one after the other."""

    sessions: list[Session]
    names: list[str]
    ratio: float | None  # of fused time to the chain's; None: already fused


@dataclass(frozen=True)
class BlockTime:
    """One block, or one fused half, of a run."""

    name: str
    seconds: float
    thread_seconds: float


@dataclass(frozen=True)
class HalfRun:
    """How a half was run, for whoever learns from its time."""

    seconds: float  # as it was
    steady_seconds: float  # as a fused half would have taken: no jump when the chain is replaced
    blocks: tuple[BlockTime, ...]
    implementation: str  # "chain" or "fused"
    generation: int  # changes whenever this half is run in another way than before
    settled: bool  # False: just built, or something was being built; better not learned from


@dataclass(frozen=True)
class FrontResult(HalfRun):
    """What the device has after its half: tensors to send, and outputs that are already final."""

    crossing: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class BackResult(HalfRun):
    """The outputs that the front-end had not produced."""

    outputs: dict[str, NDArray[Any]]


class Executor:
    """Runs the halves of a model. Every method may be called from several threads.

    `memory_budget` bounds the bytes that fused halves keep for themselves (default: as much as
    the weights, at least 256 MB). `on_block` is called after each block with its thread and wall
    time; what it does counts as the device's time, so that a testbed can make a device slower.
    `local=False` is a device that holds no back-end.
    """

    def __init__(
        self,
        model: Model,
        points: Sequence[Point],
        runtime: RuntimeOptions | None = None,
        memory_budget: int | None = None,
        on_block: BlockHook | None = None,
        local: bool = True,
    ) -> None:
        self.model = model
        self.points = tuple(points)
        self.on_block = on_block
        self.local = local
        self._runtime = runtime or RuntimeOptions()
        self._halves = HalfCache(model, self._runtime, memory_budget)
        self._chain: list[Session | None] = [None] * (len(self.points) - 1)
        self._fixed: dict[str, NDArray[Any]] | None = None
        self._lock = Lock()  # around building blocks and the bookkeeping below
        self._generation: dict[Stretch, int] = {}
        self._last: dict[Stretch, list[int]] = {}  # serials: must not keep dropped sessions alive
        self._runs: dict[Stretch, int] = {}
        self._building = 0

    # ---- running

    def run_front(self, point_index: int, inputs: Arrays) -> FrontResult:
        point = self._point(point_index)
        if point is self.points[-1]:
            self._need_local("the last point runs the whole model on the device")
        values = checked_arrays(inputs, self.model.inputs, "input")
        key = (FRONT, point.index)
        run, made = self._run(key, self._implementation(key), values)
        return _front_result(run, made, point, point.outputs)

    def run_on(self, point_index: int, to_index: int, crossing: Arrays) -> FrontResult:
        """From one point to a later one: a front-end goes on after a look at an early exit. Always
        by the chain; outputs are those made on the way."""
        start, stop = self._point(point_index), self._point(to_index)
        if not start.index < stop.index < len(self._chain):
            raise InputError(f"nothing to run from point {start.index} on to point {stop.index}")
        values = checked_arrays(crossing, start.tensors, "crossing tensor")
        key = (start.index, stop.index)
        run, made = self._run(key, self._chained(*key, FRONT), values)
        new = [name for name in stop.outputs if name not in start.outputs]
        return _front_result(run, made, stop, new)

    def run_back(self, point_index: int, crossing: Arrays) -> BackResult:
        point = self._point(point_index)
        values = checked_arrays(crossing, point.tensors, "crossing tensor")
        key = (BACK, point.index)
        run, made = self._run(key, self._implementation(key), values)
        outputs = {n: made[n] for n in self.model.outputs if n not in point.outputs}
        return BackResult(**vars(run), outputs=outputs)

    def run_together(self, point_index: int, crossings: Sequence[Arrays]) -> list[BackResult]:
        """The back-ends of several requests in one run, after `try_batches` has found that good.
        Each result has its share of the time."""
        point = self._point(point_index)
        found = self._halves.get((BATCH, point.index))
        if found is None:
            raise RunError(f"no batches are run at point {point.index}")
        rows = [checked_arrays(each, point.tensors, "crossing tensor") for each in crossings]
        how = Implementation([found.session], [f"batch of {point.name}"], None)
        run, made = self._run((BATCH, point.index), how, batching.joined(rows))
        wanted = [n for n in self.model.outputs if n not in point.outputs]
        parts = batching.parted({name: made[name] for name in found.session.outputs}, len(rows))
        if parts is None:
            raise RunError(f"a batch at point {point.index} gave other outputs than single runs")
        share = replace(
            run, seconds=run.seconds / len(rows), steady_seconds=run.steady_seconds / len(rows)
        )
        made_here = [{**self._constant_outputs(), **each} for each in parts]
        return [
            BackResult(**vars(share), outputs={name: each[name] for name in wanted})
            for each in made_here
        ]

    def continue_locally(self, point_index: int, crossing: Arrays) -> BackResult:
        """Finish here what was meant for the server; the front-end's work is not repeated."""
        self._need_local("it cannot finish an inference the server did not answer")
        return self.run_back(point_index, crossing)

    def run_whole(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        return self.run_front(len(self.points) - 1, inputs).outputs

    # ---- building

    def build(self) -> None:
        """Build the chain: afterwards every half of every point can run."""
        self._blocks(0, len(self._chain) if self.local else len(self._chain) - 1)

    def prepare(
        self, point_index: int, sides: Sequence[str] = (FRONT, BACK), calibrate: bool = True
    ) -> bool:
        """Build the fused halves of a point; False when the memory budget cannot hold one.

        Calibration runs them a few times beside the chain, on made-up values, so that times taken
        on either can be compared (`steady_seconds`).
        """
        point = self._point(point_index)
        # A list, not a generator: the second half is built also when the first does not fit.
        done = [self._prepare((side, point.index), calibrate) for side in sides]
        return all(done)

    def prepare_in_background(
        self, point_index: int, sides: Sequence[str] = (FRONT, BACK)
    ) -> Thread:
        """The same in a thread of its own; runs meanwhile use the chain."""
        work = partial(self.prepare, point_index, sides)
        return background.start(work, f"cans-build-{point_index}")

    def try_batches(self, point_index: int, most: int) -> dict[int, float]:
        """Time of a batch over that of as many single runs of this back-end, for a few sizes up to
        `most`; empty: it cannot be run in batches, or gives other outputs than single runs."""
        point = self._point(point_index)
        sizes = batching.sizes_up_to(most)
        key, whole = (BACK, point.index), len(self._chain)
        if not sizes or point.index == whole:
            return {}
        self._prepare(key, calibrate=False)
        with self._lock:
            self._building += 1
        try:
            depths = [each.depth for each in self.points]
            built = self._halves.build(depths[point.index], depths[whole], batched=True)
            if built is None:
                return {}
            session, cost = built
            rows = batching.made_up(point.tensors, sizes[-1])
            alone = self._implementation(key).sessions
            found = batching.relative_times(partial(_through, alone), session.run, rows, sizes)
            if found:
                self._halves.put((BATCH, point.index), Dedicated(session, cost, 1.0))
            return found
        except (ModelError, RunError):  # the runtime will not have it
            return {}
        finally:
            with self._lock:
                self._building -= 1

    def adopt_whole(self, handle: ort.InferenceSession) -> None:
        """Run the whole model, from now on, with a session on its file that exists already."""
        session = Session(self.model.graph.inputs, self.model.outputs, handle)
        self._halves.put((FRONT, len(self._chain)), Dedicated(session, cost=0, ratio=1.0))

    def ready(self, point_index: int, side: str = FRONT) -> bool:
        """Would this half run as a fused session now?"""
        key = (side, self._point(point_index).index)
        return self._span(key)[1] <= 1 or self._halves.get(key) is not None

    def whole_run(self) -> Callable[[Arrays], dict[str, NDArray[Any]]] | None:
        """A function that runs the whole model, on inputs that are known to fit, without timing or
        hooks; None: it is not run by one session, or not yet."""
        sessions, _, ratio = self._implementation((FRONT, len(self._chain)))
        if not self.local or ratio is not None or len(sessions) != 1 or self._constant_outputs():
            return None
        return sessions[0].run

    @property
    def building(self) -> bool:
        """Whether something is being built, and runs take longer than they do."""
        return self._building > 0

    # ---- inside

    def _run(
        self, key: Stretch, how: Implementation, values: Arrays
    ) -> tuple[HalfRun, dict[str, NDArray[Any]]]:
        sessions, names, ratio = how
        fixed = self._constant_outputs()
        generation, settled = self._note(key, sessions)
        blocks: list[BlockTime] = []
        settled = settled and self._building == 0
        made = {**fixed, **values}
        start = time.perf_counter()
        for session, name in zip(sessions, names, strict=True):
            wall, own = time.perf_counter(), time.thread_time()
            made.update(session.run(made))
            own = time.thread_time() - own
            if self.on_block is not None:
                self.on_block(name, own, time.perf_counter() - wall)
            blocks.append(BlockTime(name, time.perf_counter() - wall, own))
        seconds = time.perf_counter() - start
        kind = "fused" if ratio is None else "chain"
        settled = settled and self._building == 0
        steady = seconds * (1.0 if ratio is None else ratio)
        return HalfRun(seconds, steady, tuple(blocks), kind, generation, settled), made

    def _implementation(self, key: Key) -> Implementation:
        first, count = self._span(key)
        found = self._halves.get(key) if count > 1 else None
        if found is None and count == len(self._chain) > 1:  # the whole model, from either side
            found = self._halves.get((BACK, 0) if key[0] == FRONT else (FRONT, count))
        if found is not None:
            name = f"{key[0]} of {self.points[key[1]].name}"
            return Implementation([found.session], [name], None)
        return self._chained(first, first + count, key[0])

    def _chained(self, first: int, stop: int, side: str) -> Implementation:
        """Blocks one after the other; one, or none, is as fused as can be."""
        names = [self._block_name(i) for i in range(first, stop)]
        known = self._halves.ratios(side) if len(names) > 1 else []
        ratio = None if len(names) <= 1 else median(known) if known else 1.0
        return Implementation(self._blocks(first, stop), names, ratio)

    def _prepare(self, key: Key, calibrate: bool) -> bool:
        if self.ready(key[1], key[0]):
            return True
        first, count = self._span(key)
        with self._lock:
            self._building += 1
        try:
            depths = [each.depth for each in self.points]
            built = self._halves.build(depths[first], depths[first + count])
            if built is None:
                return False
            session, cost = built
            ratio = 1.0
            if calibrate:
                chain = self._blocks(first, first + count)
                ratio = self._calibrate(session, chain, self._tensors_before(first))
            self._halves.put(key, Dedicated(session, cost, ratio))
            return True
        finally:
            with self._lock:
                self._building -= 1

    @staticmethod
    def _calibrate(session: Session, chain: list[Session], tensors: Sequence[Tensor]) -> float:
        """Fused time over chain time, alternating, best of a few (others use this machine too)."""
        values = random_inputs(tensors, np.random.default_rng(0))
        best = [float("inf"), float("inf")]
        for _ in range(_CALIBRATION):
            if background.ending.is_set():
                return 1.0
            for i, sessions in enumerate(([session], chain)):
                made = dict(values)
                start = time.perf_counter()
                for each in sessions:
                    made.update(each.run(made))
                best[i] = min(best[i], time.perf_counter() - start)
        return best[0] / best[1]

    def _blocks(self, start: int, stop: int) -> list[Session]:
        with self._lock:
            for i in range(start, stop):
                if self._chain[i] is None:
                    piece = cut_out(self.model, self.points[i].depth, self.points[i + 1].depth)
                    self._chain[i] = open_session(piece, self.model.weights, self._runtime)
            return [block for block in self._chain[start:stop] if block is not None]

    def _note(self, key: Stretch, sessions: list[Session]) -> tuple[int, bool]:
        with self._lock:
            now = [session.serial for session in sessions]
            if self._last.get(key) != now:
                self._last[key] = now
                self._generation[key] = self._generation.get(key, 0) + 1
                self._runs[key] = 0
            self._runs[key] += 1
            return self._generation[key], self._runs[key] > _SETTLING or not sessions

    def _constant_outputs(self) -> dict[str, NDArray[Any]]:
        if self._fixed is None:
            names = constant_outputs(self.model.graph)
            self._fixed = self._compute_constants(names) if names else {}
        return self._fixed

    def _compute_constants(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        piece = assemble(self.model, (), (), names)
        return open_session(piece, self.model.weights, self._runtime).run({})

    def _span(self, key: Key) -> tuple[int, int]:
        """First block and number of blocks of a half."""
        side, index = key
        return (0, index) if side == FRONT else (index, len(self._chain) - index)

    def _block_name(self, index: int) -> str:
        return self.points[index + 1].name

    def _tensors_before(self, block: int) -> tuple[Tensor, ...]:
        return self.model.inputs if block == 0 else self.points[block].tensors

    def _point(self, index: int) -> Point:
        if not 0 <= index < len(self.points):
            raise InputError(f"there is no point {index}; the last is {len(self.points) - 1}")
        return self.points[index]

    def _need_local(self, why: str) -> None:
        if not self.local:
            raise RunError(f"this device holds no back-end: {why}")


def _front_result(
    run: HalfRun, made: dict[str, NDArray[Any]], point: Point, outputs: Sequence[str]
) -> FrontResult:
    crossing = {each.name: made[each.name] for each in point.tensors}
    return FrontResult(
        **vars(run), crossing=crossing, outputs={name: made[name] for name in outputs}
    )


def _through(sessions: Sequence[Session], values: Arrays) -> dict[str, NDArray[Any]]:
    """All that these sessions make, one feeding the next."""
    made = dict(values)
    for each in sessions:
        made.update(each.run(made))
    return made


@cache
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name  # NumPy builds this string at every access


def checked_arrays(values: Arrays, wanted: Sequence[Tensor], what: str) -> dict[str, NDArray[Any]]:
    """The wanted arrays, of the declared type and a shape that fits."""
    checked: dict[str, NDArray[Any]] = {}
    for each in wanted:
        if each.name not in values:
            raise InputError(f"{what} {each.name!r} is missing")
        array = np.asarray(values[each.name])
        if not each.fits(array.shape) or _name(array.dtype) != each.dtype:
            raise InputError(
                f"{what} {each.name!r} must be {each.spelled}, "
                f"got {array.dtype.name}{list(array.shape)}"
            )
        checked[each.name] = np.ascontiguousarray(array).reshape(array.shape)
    return checked
