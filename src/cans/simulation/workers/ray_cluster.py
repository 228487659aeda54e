"""Workers of a Ray cluster that exists."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from cans.errors import InputError, Unreachable
from cans.simulation.workers.workers import WorkerLost

Result = TypeVar("Result")


class RayCluster:
    """A Ray cluster, by its address (`local`: one that lives as long as this)."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("--ray needs Ray: pip install 'cans-edge[cluster]'") from None
        self._ray = ray
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if address == "local" else None,
                ignore_reinit_error=True,
            )
        except ConnectionError:
            raise Unreachable(f"no Ray cluster answers at {address}") from None
        except ValueError as error:
            raise InputError(f"--ray {address!r}: {error}") from None
        self._call = ray.remote(max_retries=3)(_call)

    def count(self) -> int:
        return max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        future: Future[Result] = self._call.remote(function, *arguments).future()
        return future

    def result(self, future: Future[Result]) -> Result:
        from ray import exceptions

        try:
            return future.result()
        except exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except (exceptions.WorkerCrashedError, exceptions.NodeDiedError) as error:
            raise WorkerLost(f"workers of the Ray cluster died: {type(error).__name__}") from None

    def close(self) -> None:
        self._ray.shutdown()


def _call(function: Callable[..., Result], *arguments: Any) -> Result:
    return function(*arguments)
