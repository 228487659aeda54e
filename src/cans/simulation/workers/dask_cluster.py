"""Workers of a Dask cluster that exists."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from cans.errors import InputError, Unreachable
from cans.simulation.workers.workers import CONNECT_S, WorkerLost, check_reachable

Result = TypeVar("Result")


class DaskCluster:
    """A Dask scheduler, by its address; Dask itself gives the work of a dead worker to another."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise InputError("--dask needs Dask: pip install 'cans-edge[cluster]'") from None
        if address.partition("://")[0] in ("tcp", "tls", address):
            check_reachable(address, "--dask", "Dask scheduler")
        try:
            self._client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError):
            raise Unreachable(f"no Dask scheduler answers at {address}") from None
        except (ValueError, TypeError) as error:
            raise InputError(f"--dask {address!r}: {error}") from None
        self._executor = self._client.get_executor(pure=False)

    def count(self) -> int:
        return sum(self._client.nthreads().values())

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        future: Future[Result] = self._executor.submit(function, *arguments)
        return future

    def result(self, future: Future[Result]) -> Result:
        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except KilledWorker as error:
            raise WorkerLost(f"workers of the Dask cluster died: {error}") from None
        except CancelledError:
            if self._client.status != "running":
                raise Unreachable("the Dask scheduler has gone") from None
            raise WorkerLost("the Dask cluster dropped the work") from None

    def close(self) -> None:
        self._executor.shutdown(wait=False)
        self._client.close()
