"""The agent: answers a device's requests one at a time, and tends to the rest between them.

Whoever has the turn (`inbox.py`) owns the learner: the agent's thread, or for the time of one
request the caller's. An answer is handed over before it is learned from, and the turn passes on
only after that: `observe` always comes before the next `select`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic

from cans.errors import CansError, Unreachable
from cans.live.clock import Clock
from cans.live.device.deadline import Abandoned
from cans.live.device.experience import Experience
from cans.live.device.inbox import Inbox, Turn
from cans.live.device.options import DeviceOptions
from cans.live.device.report import Report
from cans.live.device.request import Job, Round, Rounds, expired
from cans.live.device.session import Tending
from cans.live.device.timing import Stopwatch
from cans.live.usage import Usage

_log = logging.getLogger(__name__)


class Task:
    """Something else than an inference that the agent's thread is asked to do."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.future: Future[None] = Future()

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(None)


class Agent(threading.Thread):
    """Runs until `close`."""

    def __init__(
        self,
        options: DeviceOptions,
        experience: Experience,
        inbox: Inbox,
        rounds: Rounds,
        tending: Tending,
        stopwatch: Stopwatch,
        usage: Usage,
        clock: Clock,
    ) -> None:
        super().__init__(name="cans-device", daemon=True)
        self._options = options
        self._experience = experience
        self._inbox = inbox
        self._rounds = rounds
        self._tending = tending
        self._stopwatch = stopwatch
        self._usage = usage
        self._clock = clock
        self._last: Report | None = None
        self._explained = threading.Event()
        self._explained.set()
        self.failures = 0  # requests the server did not answer

    @property
    def last(self) -> Report | None:
        """The last inference, explained: that comes after its answer, so it may take a moment."""
        self._explained.wait()
        return self._last

    # --- the thread ---

    def run(self) -> None:
        while True:
            turn, job = self._inbox.next_turn(self._tending.idle_seconds())
            try:
                if turn is Turn.AFTER:
                    job()
                self._tending.tend()
                if turn is Turn.END:
                    # An upload on the wire is given a moment to be acknowledged; if it is not, it
                    # goes again with the next start.
                    self.settle(1.0)
                    return
                if isinstance(job, Task):
                    job.run()
                elif turn is Turn.JOB:
                    after = self._answer(job)
                    if after is not None:
                        after()
                if self._experience.learner is not None:  # not when someone waits for a choice
                    self._experience.learner.get_ready()
            except Exception:  # a mistake of ours must not end the thread
                _log.exception("the agent made a mistake")
            finally:
                self._inbox.give_back()

    def answer_here(self, job: Job) -> bool:
        """Answer in the caller's thread, if the agent is idle and the deadline is far enough that
        nobody needs to watch it from outside; the bookkeeping is left to the agent."""
        enough = 2.0 * self._rounds.times.rest(0) < job.deadline - monotonic()
        if not (enough and self._options.local and self._inbox.try_take()):
            return False
        after: Callable[[], None] | None = None
        try:
            self._tending.tend()
            after = self._answer(job)
        finally:
            if after is None:
                self._inbox.give_back()
            else:
                self._inbox.hand_over(after)
        return True

    # --- tasks ---

    def settle(self, seconds: float) -> None:
        self._tending.await_answers(monotonic() + seconds)

    def refresh(self) -> None:
        self._tending.refresh()

    # --- one request ---

    def _answer(self, job: Job) -> Callable[[], None] | None:
        """Serve a request, whatever happens; returns its bookkeeping."""
        try:
            return self._serve(job)
        except Exception as error:
            _log.exception("the agent made a mistake")
            if not job.future.done():
                job.future.set_exception(error)
            return None

    def _serve(self, job: Job) -> Callable[[], None] | None:
        late = expired(job)
        if late is not None:
            job.future.set_exception(late)
            return None
        # The answer to the last upload is worth waiting for, for a moment.
        moment = monotonic() + self._options.sync_wait_ms / 1e3
        self._tending.await_answers(min(moment, job.deadline))
        self._rounds.abandonment.begin(job.given_up.is_set)
        server = self._tending.server
        try:
            played = self._rounds.play(job, server, self._tending.why_not)
        except Abandoned:
            return None  # its caller has been told already
        except CansError as error:
            self._tending.judge(server, error)
            if not job.future.done():
                job.future.set_exception(error)
            return None
        finally:
            self._rounds.abandonment.end()
        self._explained.clear()
        if not job.given_up.is_set():
            job.future.set_result(played.outputs)  # the answer; what follows is bookkeeping
        return lambda: self._after(played, server)

    def _after(self, played: Round, server: int | None) -> None:
        try:
            report = self._last = played.tell()
        finally:
            self._explained.set()
        if played.failure is not None:
            self.failures += 1
            self._tending.judge(server, played.failure)
        elif report.answered_by != "device" and server is not None:
            self._tending.answered(server)
        self._tending.account_for(report, played.choice, server is not None)
        self._experience.adopt(played.pools)
        self._usage.used(played.front)
        if played.choice is None or self._experience.terms is None:
            self._experience.answered()
            return
        latencies = self._stopwatch.latencies(played.choice, played.measured)
        uploads = self._experience.observe(played.choice, latencies, self._clock.now())
        if uploads and self._experience.terms.delivery == "immediate":
            self._tending.deliver()
        if report.answered_by == "device" and not played.failure:
            self._tending.probe_if_wanted()
        self._tending.tell()

    # --- closing ---

    def close(self) -> None:
        """Answer what was begun, refuse the rest, keep everything."""
        for job in self._inbox.close():
            job.future.set_exception(Unreachable("the device was closed"))
        if self.is_alive():
            self.join()
