"""The bounded pool of threads in which back-ends run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter
from typing import Generic, NamedTuple, TypeVar

from cans.live.server.admission import Admission
from cans.live.server.quantiles import Recent

Result = TypeVar("Result")


class Done(NamedTuple, Generic[Result]):
    result: Result
    queue_ms: float
    compute_ms: float


class Workers:
    """Runs jobs in threads; refuses at once what cannot be done in time."""

    def __init__(self, workers: int, queue: int) -> None:
        self.admission = Admission(workers, queue)
        self.queue_ms = Recent()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="back-end")

    async def run(
        self, kind: Hashable, job: Callable[[], Result], remaining_ms: float | None
    ) -> Done[Result]:
        """Run a job of a kind (jobs of one kind take equally long) and tell how long it took."""
        ticket = self.admission.admit(kind, remaining_ms)
        arrived = perf_counter()
        loop = asyncio.get_running_loop()

        def timed() -> tuple[Result, float, float]:
            start = perf_counter()
            result = job()
            return result, start, perf_counter()

        def left(future: Future[tuple[Result, float, float]]) -> None:
            # Only when its thread is done with it: a request whose client has gone still holds its
            # worker until the run ends; one still waiting never starts.
            compute_ms = None
            if not future.cancelled() and future.exception() is None:
                _, start, end = future.result()
                compute_ms = (end - start) * 1e3
            with suppress(RuntimeError):  # the loop has closed: nobody counts any more
                loop.call_soon_threadsafe(self.admission.finished, kind, ticket, compute_ms)

        future = self._threads.submit(timed)
        future.add_done_callback(left)
        result, start, end = await asyncio.wrap_future(future)
        queue_ms = (start - arrived) * 1e3
        self.queue_ms.add(queue_ms)
        return Done(result, queue_ms, (end - start) * 1e3)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
