"""The agent of a device: it plays requests in turn, learns from them, and tends the session.

A request is played in its caller's thread, in turn. What there is to learn from it comes after its
answer, in the agent's thread and before the next choice; so do the events of the session.
"""

from __future__ import annotations

import logging
from functools import partial
from threading import Thread
from time import monotonic, perf_counter

from cans.errors import CansError, DeadlineExceeded
from cans.live.clock import Clock
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.local import Abandoned
from cans.live.device.reporting.report import Report
from cans.live.device.request import Requests
from cans.live.device.round import Asked, Job, Round
from cans.live.device.servers.session import Session
from cans.live.device.timing import Measured
from cans.live.device.turns import Turns, Work
from cans.live.usage import Usage
from cans.live.wire.inference import InferReply
from cans.live.wire.link import Pending
from cans.models.run import background

_log = logging.getLogger(__name__)


class Agent(Thread):
    """Runs until `close`."""

    def __init__(
        self,
        local: bool,
        turns: Turns,
        requests: Requests,
        session: Session,
        experience: Experience,
        hooks: Hooks,
        usage: Usage,
        clock: Clock,
    ) -> None:
        super().__init__(name="cans-device", daemon=True)
        self._local = local
        self._turns = turns
        self._requests = requests
        self._session = session
        self._experience = experience
        self._hooks = hooks
        self._usage = usage
        self._clock = clock
        self._last: Job | None = None
        self._playing: set[int] = set()  # requests that were begun, by identity
        self._late: dict[int, Round] = {}  # answered here, and a reply may still come
        self.failures = 0  # requests the server did not answer

    @property
    def last(self) -> Report | None:
        """The last inference, explained: that comes after its answer, so it may take a moment."""
        return self._last.report.result() if self._last is not None else None

    # --- one request, in its caller's thread ---

    def has_time_for(self, job: Job) -> bool:
        """Whether the deadline is so far that nobody needs to watch it from another thread."""
        return self._local and 2.0 * self._requests.times.rest(0) < job.deadline - monotonic()

    def answer(self, job: Job) -> Round:
        """Play a request and leave what there is to learn from it to the agent."""
        server: int | None = None
        self._playing.add(id(job))
        try:
            self._requests.abandonment.begin(job.given_up.is_set)
            with self._turns.turn(job.deadline):
                server = self._session.server
                played = self._requests.begin(job, server, self._session.why_not)
                if isinstance(played, Round):
                    self._turns.leave_to_agent(partial(self._learn, played))
            if isinstance(played, Asked):
                played = self._requests.finish(played)
                self._turns.leave_to_agent(partial(self._learn, played))
        except Abandoned:
            raise DeadlineExceeded("no answer in time") from None
        except CansError as error:
            self._turns.leave_to_agent(partial(self._session.judge, server, error))
            raise
        finally:
            self._requests.abandonment.end()
            self._playing.discard(id(job))
        self._last = job
        return played

    # --- the thread ---

    def run(self) -> None:
        until: float | None = None  # closing: uploads on the wire are given until then
        while True:
            idle = 0.02 if self._turns.closed else self._session.idle_seconds()
            work, events = self._turns.next(idle)
            try:
                for each in work:
                    self._guarded(each)
                self._guarded(partial(self._session.tend, events))
                if self._experience.learner is not None:  # not when someone waits for a choice
                    self._guarded(self._experience.learner.get_ready)
            finally:
                self._turns.give_back()
            if self._turns.closed and not self._playing:
                until = until or monotonic() + 1.0
                if self._turns.all_learned and (monotonic() > until or not self._unsettled()):
                    break
        for played in self._late.values():
            self._guarded(partial(self._observe, played, played.measured))
        self._late.clear()
        self._guarded(self._session.leave)

    @staticmethod
    def _guarded(work: Work) -> None:
        try:
            work()
        except Exception:  # a mistake of ours must not end the thread
            _log.exception("the agent made a mistake")

    def _learn(self, played: Round) -> None:
        """After an answer: explain it, judge the server, learn."""
        self._experience.use_rows(played.job.rows)
        try:
            report = played.explain()
            played.job.report.set_result(report)
        except BaseException as error:
            played.job.report.set_exception(error)
            raise
        if played.late is not None:
            assert played.server is not None
            self.failures += 1
            self._session.account_for(report, played.choice, played.trace)
            self._session.suspect(played.server)
            self._late[id(played)] = played
            played.late.when_done(partial(self._replied_late, played, played.late))
            return
        if played.failure is not None:
            self.failures += 1
            self._session.judge(played.server, played.failure)
        elif played.server is not None:
            self._session.answered(played.server)
            if played.choice is not None:
                self._requests.accuracy.watch(played.choice, played.job.inputs, played.outputs)
        self._session.account_for(report, played.choice, played.trace)
        self._observe(played, played.measured)
        if report.answered_by == "device" and not played.failure:
            self._session.probe_if_wanted()
        self._session.tell()

    def _replied_late(self, played: Round, pending: Pending[InferReply]) -> None:
        """In a thread of gRPC: the reply to a request that this device has answered itself."""
        self._turns.leave_to_agent(partial(self._learn_late, played, pending, perf_counter()))

    def _learn_late(self, played: Round, pending: Pending[InferReply], end: float) -> None:
        if self._late.pop(id(played), None) is None:
            return  # the device was closing, and did not wait for it
        assert played.server is not None
        assert played.asked is not None
        measured = played.measured
        try:
            measured = self._requests.measure(played.asked, pending.result(), end)
            self._session.answered(played.server, late=True)
        except CansError as error:
            self._session.never_answered(played.server, error)
        self._observe(played, measured)

    def _observe(self, played: Round, measured: Measured) -> None:
        self._usage.used(played.front)
        terms = self._experience.terms
        if played.choice is None or terms is None or not self._hooks.learning:
            self._experience.answered()
            return
        self._experience.adopt(played.pools)
        self._experience.use_rows(played.job.rows)
        latencies = self._hooks.stopwatch.latencies(played.choice, measured)
        uploads = self._experience.observe(played.choice, latencies, self._clock.now())
        if uploads and terms.delivery == "immediate":
            self._session.deliver()

    # --- closing ---

    def settle(self, seconds: float) -> None:
        """Wait until all that was observed is learned, and what a server is there for has arrived:
        uploads and accounts."""
        self._turns.wait_until(lambda: not self._unsettled(), seconds)

    def _unsettled(self) -> bool:
        return self._session.waits or bool(self._late)

    def close(self) -> None:
        """Answer what was begun, refuse the rest, learn what is there."""
        self._turns.close()
        if self.is_alive():
            background.join_patiently(self)
