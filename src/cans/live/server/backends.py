"""One request for a back-end: checked against the table, run in a pool of workers, answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cans.errors import RemoteProtocolError, RunError
from cans.learning.congestion import Load
from cans.live.server.catalogue import (
    Catalogue,
    check_sizes,
    check_tensors,
    largest_payload,
)
from cans.live.server.door.identity import Caller
from cans.live.server.metrics import Histogram
from cans.live.split import Array, Arrays, SplitModel
from cans.live.wire.inference import InferHeader
from cans.models.run.inputs import random_inputs

ITSELF = "server"  # who asks for what a server tries by itself
_RAW = "float32"  # the codec of a tensor's own bytes
_SETTLING = 5  # runs until a back-end is typical


@dataclass(frozen=True)
class Work:
    """A back-end of a model to be run on these bytes, by then."""

    model: SplitModel
    point: int
    codec: str
    tensors: Sequence[memoryview]  # encoded, in the order of the point's tensors
    device: str  # for whom: devices take turns
    weight: float = 1.0  # of its turns
    remaining_ms: float | None = None  # a later answer is of no use; None: any time will do
    shapes: tuple[tuple[int, ...], ...] = ()  # of the tensors; empty: those of the point

    def specs(self) -> list[tuple[str, tuple[int, ...], str]]:
        """Name, shape and type of each tensor."""
        wanted = self.model.points[self.point].tensors
        shapes = self.shapes or tuple(tuple(each.shape) for each in wanted)
        return [(each.name, shape, each.dtype) for each, shape in zip(wanted, shapes, strict=True)]


@dataclass(frozen=True)
class Answer:
    """Outputs of a back-end and what they cost."""

    outputs: dict[str, Array]
    compute_ms: float
    queue_ms: float
    warming: bool


class BackEndPool(Protocol):
    """Where back-ends run: in threads of this process, or on other machines."""

    async def run(self, work: Work) -> Answer:
        """Run it; raises `Busy` at once when it cannot be done in time."""

    @property
    def inside(self) -> int:
        """Work that is running or waiting."""

    @property
    def count(self) -> int:
        """How many back-ends can run at a time."""

    def load(self, model: str, device: str, joined: int, announced: Sequence[float]) -> Load | None:
        """How busy whatever runs this model (its digest) is with the requests of others than this
        device, and with announced ones of so many milliseconds; None: nothing runs it."""

    def expected_ms(self, model: str, point: int, codec: str) -> float:
        """How long such a back-end takes, by those that ran; 0: none did."""

    @property
    def queue_ms(self) -> Histogram:
        """How long work waited."""

    def close(self) -> None:
        """Finish what is running and refuse the rest."""


class BackEnds:
    """Checks requests for back-ends of every model and has them run."""

    def __init__(self, catalogue: Catalogue, pool: BackEndPool) -> None:
        self._catalogue = catalogue
        self._pool = pool
        self._choices: dict[str, frozenset[tuple[int, str]]] = {}

    def checked(self, header: InferHeader) -> SplitModel:
        """The model of a request whose header fits it; raises before any tensor is looked at."""
        model = self._catalogue.with_table(header.model, header.table)
        point = header.point
        if point >= model.last:
            raise RemoteProtocolError(
                f"point {point} has no back-end; there are points 0 to {model.last - 1}"
            )
        if (point, header.codec) not in self._offered(model):
            raise RemoteProtocolError(f"no codec {header.codec[:32]!r} is offered at point {point}")
        at = model.points[point]
        check_tensors(header.tensors, at.tensors, f"point {point} ({at.name})")
        if header.sizes:
            check_sizes(header.sizes, at.tensors)
        return model

    def _offered(self, model: SplitModel) -> frozenset[tuple[int, str]]:
        """The choices of the model's table: a device has agreed to these and no others."""
        found = self._choices.get(model.digest)
        if found is None:
            pairs = zip(model.table.point_of, model.table.codec_of, strict=True)
            found = self._choices[model.digest] = frozenset(pairs)
        return found

    def largest(self) -> int:
        """Bytes of the largest request that fits any table, tensors only."""
        return max(
            (
                sum(largest_payload(each) for each in point.tensors)
                for model in self._catalogue.models
                for point in model.points[:-1]
            ),
            default=0,
        )

    async def run(
        self,
        model: SplitModel,
        header: InferHeader,
        tensors: Sequence[memoryview],
        weight: float = 1.0,
    ) -> Answer:
        """Run what a checked header asks for; bytes that cannot be its tensors take no worker."""
        wanted, codec = model.points[header.point].tensors, model.codecs[header.point, header.codec]
        check_sizes([each.nbytes for each in tensors], wanted)
        shapes = tuple(tuple(each.shape) for each in header.tensors)
        for each, shape, data in zip(wanted, shapes, tensors, strict=True):
            codec.check(data, shape, each.dtype)
        patience = header.patience_ms or None
        work = Work(
            model, header.point, header.codec, tensors, header.device, weight, patience, shapes
        )
        return await self._pool.run(work)

    async def try_choice(self, model: SplitModel, choice: int) -> float | None:
        """Milliseconds that the back-end of a choice takes on made-up tensors, once it is settled;
        None: it did not settle."""
        point, codec = model.table.point_of[choice], model.table.codec_of[choice]
        tensors = await asyncio.to_thread(_made_up, model, point, codec)
        for _ in range(_SETTLING):
            answer = await self._pool.run(Work(model, point, codec, tensors, ITSELF))
            if not answer.warming:
                return answer.compute_ms
        return None

    async def run_whole(self, model: SplitModel, inputs: Arrays, caller: Caller) -> Answer:
        """The whole model here: the back-end of point 0, where the raw inputs cross."""
        front = model.executor.run_front(0, inputs)  # runs nothing
        raw = model.codecs[0, _RAW]
        tensors = [
            memoryview(raw.encode(front.crossing[each.name])) for each in model.points[0].tensors
        ]
        shapes = tuple(front.crossing[each.name].shape for each in model.points[0].tensors)
        answer = await self._pool.run(
            Work(model, 0, _RAW, tensors, caller.account, caller.weight, shapes=shapes)
        )
        outputs = {**front.outputs, **answer.outputs}
        return Answer(outputs, answer.compute_ms, answer.queue_ms, answer.warming)


def _made_up(model: SplitModel, point: int, codec: str) -> list[memoryview]:
    """Tensors as they could cross there, encoded."""
    wanted, made = model.points[point].tensors, model.codecs[point, codec]
    try:
        arrays = random_inputs(wanted, np.random.default_rng(0))
        return [memoryview(made.encode(arrays[each.name])) for each in wanted]
    except (TypeError, ValueError) as error:  # of a type or shape that has no made-up values
        raise RunError(f"cannot make up tensors for point {point}: {error}") from None
