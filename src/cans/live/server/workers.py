"""The bounded pool of threads in which back-ends run, and who may wait for one.

A request that would wait behind a full queue, or that could not be done before its deadline, is
refused at once, so that its device answers locally instead of waiting for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter

from cans.errors import Busy
from cans.live.server.backends import Answer, Work
from cans.live.server.metrics import Histogram
from cans.live.split import HalfRun

_SMOOTHING = 0.2  # weight of the newest measurement in the expected time of a job


class Admission:
    """Counts jobs and estimates how long a new one would wait. No clock, no threads."""

    def __init__(self, workers: int, queue: int) -> None:
        self.workers = workers
        self.queue = queue
        self._inside: list[float] = []  # expected ms of every job admitted and not yet finished
        self._expected: dict[Hashable, float] = {}

    @property
    def inside(self) -> int:
        """Jobs that are running or waiting."""
        return len(self._inside)

    def expected_ms(self, kind: Hashable) -> float:
        """How long a job of this kind takes; 0 before the first one."""
        return self._expected.get(kind, 0.0)

    def wait_ms(self) -> float:
        """How long a job admitted now would wait for a worker."""
        if len(self._inside) < self.workers:
            return 0.0
        return sum(self._inside) / self.workers

    def admit(self, kind: Hashable, remaining_ms: float | None) -> float:
        """Take a job in, or raise `Busy`. Returns a ticket to give back with `finished`."""
        if len(self._inside) >= self.workers + self.queue:
            raise Busy(f"{len(self._inside)} requests are waiting or running; answer locally")
        expected = self.expected_ms(kind)
        if remaining_ms is not None:
            needed = self.wait_ms() + expected
            if needed > remaining_ms:
                raise Busy(f"would take {needed:.0f} ms, the deadline is in {remaining_ms:.0f} ms")
        self._inside.append(expected)
        return expected

    def finished(self, kind: Hashable, ticket: float, compute_ms: float | None) -> None:
        """A job has left; None: it was never run."""
        self._inside.remove(ticket)
        if compute_ms is not None:
            before = self._expected.get(kind, compute_ms)
            self._expected[kind] = before + _SMOOTHING * (compute_ms - before)


_Timed = tuple[HalfRun, float, float]  # a run, and when it started and ended


class Workers:
    """A `BackEndPool` of threads in this process."""

    def __init__(self, workers: int, queue: int) -> None:
        self.admission = Admission(workers, queue)
        self.queue_ms = Histogram()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="back-end")

    @property
    def inside(self) -> int:
        return self.admission.inside

    async def run(self, work: Work) -> Answer:
        kind = (work.model.digest, work.point, work.codec)  # such jobs take equally long
        ticket = self.admission.admit(kind, work.remaining_ms)
        arrived = perf_counter()
        loop = asyncio.get_running_loop()

        def left(future: Future[_Timed]) -> None:
            # Only when its thread is done with it: a request whose client has gone still holds its
            # worker until the run ends; one still waiting never starts.
            compute_ms = None
            if not future.cancelled() and future.exception() is None:
                _, start, end = future.result()
                compute_ms = (end - start) * 1e3
            with suppress(RuntimeError):  # the loop has closed: nobody counts any more
                loop.call_soon_threadsafe(self.admission.finished, kind, ticket, compute_ms)

        future = self._threads.submit(_timed, work)
        future.add_done_callback(left)
        run, start, end = await asyncio.wrap_future(future)
        queue_ms = (start - arrived) * 1e3
        self.queue_ms.add(queue_ms)
        return Answer(run.outputs, (end - start) * 1e3, queue_ms, not run.settled)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def _timed(work: Work) -> _Timed:
    start = perf_counter()
    model, codec = work.model, work.model.codecs[work.point, work.codec]
    crossing = {
        each.name: codec.decode(data, tuple(each.shape), each.dtype)
        for each, data in zip(model.points[work.point].tensors, work.tensors, strict=True)
    }
    run = model.executor.run_back(work.point, crossing)
    return run, start, perf_counter()
