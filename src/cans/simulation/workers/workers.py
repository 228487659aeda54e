"""Where work runs: processes of this machine, or a Dask or Ray cluster that exists.

All of them take a function with its arguments and give a future; what they do differently is in
one small class each. A worker that dies is `WorkerLost`, whoever it was, and the work can be given
to another. Functions and values travel by pickle: a cluster is trusted as this machine is.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, Protocol, TypeVar

from cans.errors import InputError, RunError, Unreachable

Name = TypeVar("Name")
Result = TypeVar("Result")
TRIES = 3  # of work whose workers die
CONNECT_S = 15  # to a cluster


class WorkerLost(RunError):
    """A worker died with the work in its hands; another can do it."""


class Workers(Protocol):
    """Somewhere to run functions."""

    def count(self) -> int:
        """How many functions run at once, now."""

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Run it somewhere."""

    def result(self, future: Future[Result]) -> Result:
        """What a finished future gave; `WorkerLost` if its worker died."""

    def close(self) -> None:
        """Give up what has not begun, and let go of the workers."""


class Processes:
    """Processes of this machine."""

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise InputError(f"--workers must be at least 1, not {count}")
        self._count = count or len(os.sched_getaffinity(0))
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._count, get_context("spawn"), _begin)

    def count(self) -> int:
        return self._count

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        try:
            return self._pool.submit(function, *arguments)
        except BrokenProcessPool:  # one death ends a pool: all futures of it are lost
            self._pool.shutdown()
            self._pool = self._new_pool()
            return self._pool.submit(function, *arguments)

    def result(self, future: Future[Result]) -> Result:
        try:
            return future.result()
        except BrokenProcessPool:
            raise WorkerLost("a process of this machine died") from None

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """A process leaves the keyboard to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def check_reachable(address: str, option: str, what: str) -> None:
    """An address where nobody listens is an error at once: the libraries try for minutes."""
    host, _, port = address.rpartition("://")[2].partition("?")[0].rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InputError(f"{option} must be HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise Unreachable(f"no {what} answers at {address}: {error}") from None


def check_one(dask: str | None, ray: str | None, processes: int | None) -> None:
    """No two places to run at."""
    if sum(each is not None for each in (dask, ray, processes)) > 1:
        raise InputError("choose one of --dask, --ray and --workers")


def open_workers(
    dask: str | None = None, ray: str | None = None, processes: int | None = None
) -> Workers:
    """The workers that the options of a command ask for."""
    check_one(dask, ray, processes)
    if dask is not None:
        from cans.simulation.workers.dask_cluster import DaskCluster

        return DaskCluster(dask)
    if ray is not None:
        from cans.simulation.workers.ray_cluster import RayCluster

        return RayCluster(ray)
    return Processes(processes)


def run_all(
    workers: Workers, tasks: Mapping[Name, Callable[[], Result]]
) -> Iterator[tuple[Name, Result]]:
    """What every task gives, as they finish."""
    pending = {workers.submit(task): (name, 1) for name, task in tasks.items()}
    while pending:
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            name, tried = pending.pop(future)
            try:
                result = workers.result(future)
            except WorkerLost as error:
                if tried == TRIES:
                    raise gave_up(error) from None
                pending[workers.submit(tasks[name])] = (name, tried + 1)
                continue
            except ModuleNotFoundError as error:
                raise not_installed(error) from None
            yield name, result


def gave_up(error: WorkerLost) -> RunError:
    return RunError(f"gave up after {TRIES} tries: {error}")


def not_installed(error: ModuleNotFoundError) -> InputError:
    return InputError(
        f"a worker has no module {error.name!r}: install this version of cans-edge[sim] there"
    )
