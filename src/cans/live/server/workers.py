"""The bounded pool of threads in which back-ends run, and who may wait for one.

A request that would wait behind a full queue, or that could not be done before its deadline, is
refused at once, so that its device answers locally instead of waiting for nothing. Devices take
turns: one that sends much waits behind itself, not the others behind it.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from time import perf_counter

from cans.errors import Busy, Unreachable
from cans.live.server.admission import Admission, Ticket
from cans.live.server.backends import Answer, Work
from cans.live.server.metrics import Histogram
from cans.live.split import HalfRun


class _Job:
    """Work on its way through the queue."""

    def __init__(self, work: Work, ticket: Ticket) -> None:
        self.work = work
        self.ticket = ticket
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Answer] = self.loop.create_future()
        self.arrived = perf_counter()


class Workers:
    """A `BackEndPool` of threads in this process."""

    def __init__(self, workers: int, queue: int) -> None:
        self.admission = Admission(workers, queue)
        self.queue_ms = Histogram()
        self._jobs: dict[Ticket, _Job] = {}  # waiting or running
        self._changed = threading.Condition()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"back-end-{i}", daemon=True)
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def inside(self) -> int:
        return self.admission.inside

    async def run(self, work: Work) -> Answer:
        kind = (work.model.digest, work.point, work.codec)  # such jobs take equally long
        with self._changed:
            ticket, displaced = self.admission.admit(
                kind, work.remaining_ms, work.device, work.weight
            )
            job = self._jobs[ticket] = _Job(work, ticket)
            if displaced is not None:
                reason = "the queue is full, and others wait for their turn; answer locally"
                self._end(self._jobs.pop(displaced), Busy(reason))
            self._changed.notify()
        try:
            return await job.answer
        except asyncio.CancelledError:
            # A request whose client has gone holds its worker until the run ends; one still
            # waiting never starts.
            with self._changed:
                if self.admission.withdraw(ticket):
                    del self._jobs[ticket]
            raise

    # --- in the threads ---

    def _serve(self) -> None:
        while True:
            with self._changed:
                while (ticket := self.admission.next()) is None:
                    if self._closing:
                        return
                    self._changed.wait()
                job = self._jobs[ticket]
            start = perf_counter()
            run: HalfRun | None = None
            error: BaseException | None = None
            try:
                run = _run(job.work)
            except (
                BaseException
            ) as raised:  # whatever it is, its caller is told and not this thread
                error = raised
            end = perf_counter()
            queue_ms, compute_ms = (start - job.arrived) * 1e3, (end - start) * 1e3
            with self._changed:
                del self._jobs[ticket]
                self.admission.finished(ticket, None if error else compute_ms)
                if run is not None:
                    self.queue_ms.add(queue_ms)
            if run is None:
                self._end(job, error or RuntimeError("no result"))
            else:
                self._end(job, Answer(run.outputs, compute_ms, queue_ms, not run.settled))

    @staticmethod
    def _end(job: _Job, result: Answer | BaseException) -> None:
        def tell() -> None:
            if job.answer.done():
                return
            if isinstance(result, BaseException):
                job.answer.set_exception(result)
            else:
                job.answer.set_result(result)

        with suppress(RuntimeError):  # the loop has closed: nobody waits any more
            job.loop.call_soon_threadsafe(tell)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            for ticket in self.admission.drop_waiting():
                self._end(self._jobs.pop(ticket), Unreachable("the server is stopping"))
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()


def _run(work: Work) -> HalfRun:
    model, codec = work.model, work.model.codecs[work.point, work.codec]
    crossing = {
        each.name: codec.decode(data, tuple(each.shape), each.dtype)
        for each, data in zip(model.points[work.point].tensors, work.tensors, strict=True)
    }
    return model.executor.run_back(work.point, crossing)
