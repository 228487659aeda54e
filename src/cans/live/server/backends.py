"""One request for a back-end: checked, decoded, run, answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cans.errors import RemoteProtocolError
from cans.live.server.catalogue import Catalogue, check_tensors
from cans.live.server.workers import Workers
from cans.live.split import Array, Arrays, SplitModel
from cans.live.usage import Usage


@dataclass(frozen=True)
class Answer:
    """Outputs of a back-end and what they cost."""

    outputs: dict[str, Array]
    compute_ms: float
    queue_ms: float
    warming: bool


class BackEnds:
    """Runs back-ends of every model in the bounded pool of workers."""

    def __init__(self, catalogue: Catalogue, workers: Workers) -> None:
        self._catalogue = catalogue
        self._workers = workers
        self._usage = {each.digest: Usage(each.executor, "back") for each in catalogue.models}

    def checked(self, header: Any) -> SplitModel:
        """The model of a request whose header fits it; raises before any tensor is looked at."""
        model = self._catalogue.with_table(header.model, header.table)
        point = header.point
        if point >= model.last:
            raise RemoteProtocolError(
                f"point {point} has no back-end; there are points 0 to {model.last - 1}"
            )
        if (point, header.codec) not in model.codecs:
            raise RemoteProtocolError(f"no codec {header.codec[:32]!r} at point {point}")
        at = model.points[point]
        check_tensors(header.tensors, at.tensors, f"point {point} ({at.name})")
        return model

    async def run(
        self, model: SplitModel, header: Any, tensors: Sequence[memoryview], left_ms: float | None
    ) -> Answer:
        point = header.point
        codec = model.codecs[point, header.codec]
        wanted = model.points[point].tensors
        if len(tensors) != len(wanted):
            raise RemoteProtocolError(f"{len(tensors)} tensors came, {len(wanted)} were announced")

        def job() -> tuple[dict[str, Array], bool]:
            crossing = {
                each.name: codec.decode(data, tuple(each.shape), each.dtype)
                for each, data in zip(wanted, tensors, strict=True)
            }
            run = model.executor.run_back(point, crossing)
            return run.outputs, run.settled

        done = await self._workers.run((model.digest, point, codec.name), job, left_ms)
        self._usage[model.digest].used(point)
        outputs, settled = done.result
        return Answer(outputs, done.compute_ms, done.queue_ms, not settled)

    async def run_whole(self, model: SplitModel, inputs: Arrays) -> Answer:
        def job() -> dict[str, Array]:
            front = model.executor.run_front(0, inputs)  # runs nothing: point 0 is the raw input
            return {**front.outputs, **model.executor.run_back(0, front.crossing).outputs}

        done = await self._workers.run((model.digest, 0, ""), job, None)
        return Answer(done.result, done.compute_ms, done.queue_ms, False)
