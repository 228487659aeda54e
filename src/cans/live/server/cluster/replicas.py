"""A replica: an actor of the cluster that holds one model; and the runner that gives it work."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from cans.errors import CansError, RunError
from cans.live.server.backends import Work
from cans.live.server.cluster.options import ClusterOptions
from cans.live.server.cluster.sources import Source
from cans.live.server.workers import Here, Ran, RunnerGone

START_S = 300.0  # a node fetches the model first
RUN_S = 60.0  # longer than any device waits: a replica that does not answer is gone


class Replica:
    """Runs back-ends of a model, one at a time; lives in a process of a node."""

    def __init__(self, source: Source) -> None:
        self._model = source.load()
        self._here = Here()

    def ready(self) -> str:
        return self._model.digest

    def run(
        self, point: int, codec: str, shapes: tuple[tuple[int, ...], ...], *tensors: Any
    ) -> Ran:
        views = [memoryview(each) for each in tensors]
        return self._here.run(Work(self._model, point, codec, views, "", shapes=shapes))


class RayRunner:
    """A `Runner` whose work is done by a replica."""

    def __init__(self, source: Source, options: ClusterOptions) -> None:
        import ray

        self._ray = ray
        self._actor = (
            ray.remote(Replica)
            .options(
                num_cpus=max(options.runtime.threads, 1) if options.runtime else 1,
                num_gpus=options.gpus_per_replica,
                max_restarts=0,  # a new one is started, wherever there is room
                scheduling_strategy="SPREAD",
            )
            .remote(source)
        )

    def wait(self) -> None:
        """Until it can be used; raises what keeps it from that."""
        try:
            self._ray.get(self._actor.ready.remote(), timeout=START_S)
        except self._ray.exceptions.RayError as error:
            self.close()
            raise RunError(f"a replica did not start: {_first_line(error)}") from None

    def run(self, work: Work) -> Ran:
        # arrays of bytes: taken into shared memory with one copy, and out of it with none
        tensors = [np.frombuffer(each, np.uint8) for each in work.tensors]
        errors = self._ray.exceptions
        try:
            ran: Ran = self._ray.get(
                self._actor.run.remote(work.point, work.codec, work.shapes, *tensors),
                timeout=RUN_S,
            )
        except errors.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, CansError) else RunError(_first_line(error)) from None
        except (errors.RayError, ConnectionError, TimeoutError) as error:
            self.close()
            raise RunnerGone(f"a replica is gone ({type(error).__name__})") from None
        return ran

    def close(self) -> None:
        with suppress(Exception):  # it is gone already, or the cluster is
            self._ray.kill(self._actor)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else type(error).__name__
