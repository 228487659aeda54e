"""The bounded pool of threads that have back-ends run, and who may wait for one.

A request that would wait behind a full queue, or that could not be done before its deadline, is
refused at once, so that its device answers locally instead of waiting for nothing. Devices take
turns: one that sends much waits behind itself, not the others behind it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple, Protocol

from cans.errors import Busy, CansError, RunError, Unreachable
from cans.learning.congestion import Load, LoadMeter, expected_wait
from cans.live.server.admission import Admission, Ticket
from cans.live.server.backends import Answer, Work
from cans.live.server.crowd.batches import Batches, deadlines
from cans.live.server.metrics import Histogram
from cans.live.split import Array, Arrays
from cans.live.usage import Usage

NOBODY = "nobody can run this model just now; answer locally"
_TRIES = 3  # runners that may be lost with the same job in their hands


class Ran(NamedTuple):
    """What a runner made of some work."""

    outputs: dict[str, Array]
    compute_ms: float
    settled: bool  # False: something was being built meanwhile
    together: bool = False  # with others, and this is its share of the time


class RunnerGone(RunError):
    """A runner does not exist any more; what it was given was not done."""


class Runner(Protocol):
    """Runs one back-end at a time (`Here`: as many as there are threads)."""

    def run(self, work: Work) -> Ran:
        """What came of it; `RunnerGone` if nothing ever will."""


class _Job:
    """Work on its way through the queue."""

    def __init__(self, work: Work, ticket: Ticket) -> None:
        self.work = work
        self.ticket = ticket
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Answer] = self.loop.create_future()
        self.arrived = self.began = perf_counter()
        self.tries = 0
        self.takes_ms = 0.0  # with all that run together with it; 0: as long as its kind does


class Workers:
    """A `BackEndPool` of threads, each of which has a runner to give work to: one that runs it in
    the thread itself, unless others are added."""

    def __init__(
        self,
        workers: int,
        queue: int,
        queue_ms: Histogram | None = None,
        on_gone: Callable[[Runner], None] = lambda _: None,
        batch: int = 1,
    ) -> None:
        """`batch`: requests of one kind that may run together here, where that is faster."""
        self.batches = Batches(batch) if batch > 1 else None
        self.admission = Admission(0, queue)
        self.queue_ms = queue_ms or Histogram()
        self._on_gone = on_gone
        self._jobs: dict[Ticket, _Job] = {}  # waiting or running
        self._meter = LoadMeter(1)
        self._changed = threading.Condition()
        self._closing = False
        self._most = sys.maxsize
        self._threads: list[threading.Thread] = []
        here = Here()
        for _ in range(workers):
            self.add(here)

    def add(self, runner: Runner) -> None:
        """One more worker."""
        thread = threading.Thread(target=self._serve, args=(runner,), name="back-end", daemon=True)
        with self._changed:
            self.admission.workers += 1
            self._meter.workers = self.admission.workers
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()  # inside: `close` joins every thread of the list

    def shrink(self, most: int) -> None:
        """No more workers than this, as soon as those beyond have nothing to do."""
        with self._changed:
            self._most = most
            self._changed.notify_all()

    @property
    def count(self) -> int:
        """How many back-ends can run at a time."""
        return self.admission.workers

    @property
    def inside(self) -> int:
        return self.admission.inside

    def expected_ms(self, model: str, point: int, codec: str) -> float:
        with self._changed:
            kind = (model, point, codec)
            return self.admission.expected_ms(kind) or self._typical_ms(perf_counter())

    def _typical_ms(self, now: float) -> float:
        """What a job takes of which none has been done: as long as others, or as those that run
        have taken so far."""
        running, _ = self.admission.ahead("")
        so_far = (1e3 * (now - self._jobs[each].began) for each in running)
        return self.admission.typical_ms or max(so_far, default=0.0)

    def load(self, model: str, device: str, joined: int, announced: Sequence[float]) -> Load | None:
        with self._changed:
            now, workers = perf_counter(), self.admission.workers
            if not workers:
                return None
            running, waiting = self.admission.ahead(device)
            if not (running or waiting or announced):  # with every answer: what is usual is cheap
                return self._meter.load(now, 0.0, joined, 0)
            typical = self._typical_ms(now)
            left = []
            for each in running:
                job = self._jobs[each]
                takes = job.takes_ms or self.admission.expected_ms(each.kind) or typical
                left.append(max(takes - 1e3 * (now - job.began), 0.0))
            waits = (self.admission.expected_ms(each.kind) or typical for each in waiting)
            queued = [*waits, *announced]
            wait_ms = expected_wait(left, queued, workers)
            inside = len(left) + self.admission.riding(device) + len(queued)
            return self._meter.load(now, wait_ms, joined, inside)

    async def run(self, work: Work) -> Answer:
        kind = (work.model.digest, work.point, work.codec)  # such jobs take equally long
        with self._changed:
            if not self.admission.workers:
                raise Busy(NOBODY)
            alone_ms = 0.0 if self.batches is None else self.batches.takes_ms(work)
            ticket, displaced = self.admission.admit(
                kind, work.remaining_ms, work.device, work.weight, alone_ms
            )
            job = self._jobs[ticket] = _Job(work, ticket)
            self._meter.arrived(job.arrived)
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

    def _serve(self, runner: Runner) -> None:
        while jobs := self._next(runner):
            start = perf_counter()
            results: list[Ran | BaseException]
            try:
                results = self._results(runner, jobs)
            except RunnerGone as gone:
                self._hand_back(jobs[0], gone)
                self._on_gone(runner)
                return
            end = perf_counter()
            for job, answer in zip(jobs, self._left(jobs, results, start, end), strict=True):
                self._end(job, answer)
        self._on_gone(runner)

    @staticmethod
    def _results(runner: Runner, jobs: Sequence[_Job]) -> list[Ran | BaseException]:
        """What came of each; whatever is raised is told to its caller, not to this thread."""
        try:
            if len(jobs) > 1 and isinstance(runner, Here):
                return runner.run_together([each.work for each in jobs])
            return [runner.run(jobs[0].work)]
        except RunnerGone:
            raise
        except BaseException as raised:
            return [raised for _ in jobs]

    def _left(
        self, jobs: Sequence[_Job], results: Sequence[Ran | BaseException], start: float, end: float
    ) -> list[Answer | BaseException]:
        """These jobs are done: their answers."""
        answers: list[Answer | BaseException] = []
        share_ms = (end - start) * 1e3 / len(jobs)
        with self._changed:
            for job, ran in zip(jobs, results, strict=True):
                del self._jobs[job.ticket]
                if isinstance(ran, BaseException):
                    self.admission.finished(job.ticket, None)
                    answers.append(ran)
                    continue
                self.admission.finished(job.ticket, share_ms)
                # All but computing: waiting, and the way to a runner and back.
                queue_ms = max((end - job.arrived) * 1e3 - ran.compute_ms, 0.0)
                self.queue_ms.add(queue_ms)
                answers.append(Answer(ran.outputs, ran.compute_ms, queue_ms, not ran.settled))
            self._meter.running(end, self.admission.running)
            self._learn_of_batches(jobs, results, 1e3 * (end - start))
        return answers

    def _learn_of_batches(
        self, jobs: Sequence[_Job], results: Sequence[Ran | BaseException], milliseconds: float
    ) -> None:
        if self.batches is None:
            return
        work = jobs[0].work
        ran = [each for each in results if isinstance(each, Ran)]
        if len(jobs) > 1 and not any(each.together for each in ran):
            self.batches.failed(work)
        elif len(ran) == len(jobs) and all(each.settled for each in ran):
            self.batches.ran(work, len(jobs), milliseconds)

    def _next(self, runner: Runner) -> list[_Job]:
        """The next job, and those that run together with it; none: this worker ends."""
        with self._changed:
            while (ticket := self.admission.next()) is None:
                if self._closing or self.admission.workers > self._most:
                    self.admission.workers -= 1
                    return []
                self._changed.wait()
            jobs = [self._jobs[ticket]]
            jobs[0].began = perf_counter()
            if self.batches is not None and isinstance(runner, Here):
                jobs += self._company(jobs[0], self.batches)
            self._meter.running(jobs[0].began, self.admission.running)
            return jobs

    def _company(self, job: _Job, batches: Batches) -> list[_Job]:
        """Jobs that already wait and run together with this one."""
        waiting = [self._jobs[each] for each in self.admission.company(job.ticket)]
        several = [job, *waiting][: batches.most]
        waited = [1e3 * (job.began - each.arrived) for each in several]
        size = batches.size(job.work, deadlines([each.work for each in several], waited))
        job.takes_ms = batches.takes_ms(job.work, size) if size > 1 else 0.0
        for each in several[1:size]:
            each.began = job.began
            self.admission.ride(each.ticket)
        return several[1:size]

    def _hand_back(self, job: _Job, gone: RunnerGone) -> None:
        """A runner is gone with a job in its hands: another does it, if there is one."""
        with self._changed:
            self.admission.workers -= 1
            job.tries += 1
            if job.tries < _TRIES and self.admission.workers and not self._closing:
                self.admission.again(job.ticket)
                self._changed.notify()
                return
            del self._jobs[job.ticket]
            self.admission.finished(job.ticket, None)
            lost = [job]
            if not self.admission.workers:
                lost += [self._jobs.pop(ticket) for ticket in self.admission.drop_waiting()]
        for each in lost:
            self._end(each, Busy(f"{gone}; answer locally"))

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
            threads = list(self._threads)
        for thread in threads:
            thread.join()


class Here:
    """Runs back-ends in the thread that asks."""

    def __init__(self) -> None:
        self._usage: dict[str, Usage] = {}

    def run(self, work: Work) -> Ran:
        start = perf_counter()
        run = work.model.executor.run_back(work.point, _decoded(work))
        self._used(work)
        return Ran(run.outputs, (perf_counter() - start) * 1e3, run.settled)

    def run_together(self, works: Sequence[Work]) -> list[Ran | BaseException]:
        """One batch of several requests for the same back-end; one that cannot be read fails alone,
        and if the batch does, each is run for itself."""
        start = perf_counter()
        crossings: dict[int, Arrays] = {}
        results: dict[int, Ran | BaseException] = {}
        for number, work in enumerate(works):
            try:
                crossings[number] = _decoded(work)
            except Exception as error:  # its caller is told
                results[number] = error
        executor, point = works[0].model.executor, works[0].point
        try:
            runs = executor.run_together(point, list(crossings.values())) if crossings else []
        except CansError:
            results |= {number: self._alone(works[number]) for number in crossings}
        else:
            share_ms = (perf_counter() - start) * 1e3 / len(works)
            for number, run in zip(crossings, runs, strict=True):
                results[number] = Ran(run.outputs, share_ms, run.settled, together=True)
                self._used(works[number])
        return [results[number] for number in range(len(works))]

    def _alone(self, work: Work) -> Ran | BaseException:
        try:
            return self.run(work)
        except Exception as error:
            return error

    def _used(self, work: Work) -> None:
        usage = self._usage.setdefault(work.model.digest, Usage(work.model.executor, "back"))
        usage.used(work.point)


def _decoded(work: Work) -> dict[str, Array]:
    """The tensors of a request."""
    codec = work.model.codecs[work.point, work.codec]
    return {
        name: codec.decode(data, shape, dtype)
        for (name, shape, dtype), data in zip(work.specs(), work.tensors, strict=True)
    }
