"""The agent of a device: it plays requests in turn, learns from them, and tends the session.

A request is played in its caller's thread, in turn. What there is to learn from it comes after its
answer, in the agent's thread and before the next choice; so do the events of the session. While a
device stays local, requests need no turn, and several are learned from at once (`staying.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Thread
from time import monotonic, perf_counter

from cans.errors import CansError, DeadlineExceeded
from cans.learning import PartitionTable
from cans.live.clock import Clock
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.local import Abandoned
from cans.live.device.own_run import OwnRun
from cans.live.device.real_work import RealWork
from cans.live.device.reporting.report import Report
from cans.live.device.request import Requests
from cans.live.device.round import Asked, Job, Round
from cans.live.device.servers.session import Session
from cans.live.device.staying import LEARNED_AT_ONCE, LOOK_SECONDS, Signature, Staying
from cans.live.device.timing import Measured
from cans.live.device.turns import Turns
from cans.live.split import Array, Arrays
from cans.live.usage import Usage
from cans.live.wire.inference import InferReply
from cans.live.wire.link import Pending
from cans.models.run import background

_log = logging.getLogger(__name__)
_LOOKING_SECONDS = 1.0  # for a look at what was run
_CALLERS_FIRST_SECONDS = 0.005  # in which whoever waited for the agent chooses and sends


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
        work: RealWork,
        own_run: OwnRun,
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
        self._work = work
        self._own_run = own_run
        self._staying = Staying()
        self._last: Job | None = None
        self._playing: set[int] = set()  # requests that were begun, by identity
        self._late: dict[int, Round] = {}  # answered here, and a reply may still come
        self.failures = 0  # requests the server did not answer
        self._patience = 1.0  # seconds, when closing

    @property
    def last(self) -> Report | None:
        """The last inference, explained: that comes after its answer, so it may take a moment."""
        if self._staying.unlearned:
            self._hurry()
            self._turns.wait_until(lambda: True, _LOOKING_SECONDS)
        return self._last.explained() if self._last is not None else None

    def _hurry(self) -> None:
        """Have the agent learn at once from what was run without a turn."""
        self._turns.leave_to_agent(self._catch_up)

    # --- one request, in its caller's thread ---

    def has_time_for(self, job: Job) -> bool:
        """Whether the deadline is so far that nobody needs to watch it from another thread."""
        return self._local and 2.0 * self._requests.times.rest(0) < job.deadline - monotonic()

    def answer(self, job: Job) -> dict[str, Array]:
        """Play a request and leave what there is to learn from it to the agent, who is not woken
        yet: it would take the interpreter from the caller, whose answer is there."""
        job.hurry = self._hurry
        outputs = self.stay(job.inputs, job.called, job)
        if outputs is not None:
            self._last = job
            return outputs
        job.hurry = self._turns.wake_agent
        if self._staying.unlearned:
            self._hurry()
        server: int | None = None
        self._playing.add(id(job))
        try:
            self._requests.abandonment.begin(job.given_up.is_set)
            with self._turns.turn(job.deadline):
                server = self._session.server
                played = self._requests.begin(job, server, self._session.why_not)
            if isinstance(played, Asked):
                played = self._requests.finish(played)
            self._last = job
            job.answered = perf_counter()
            self._turns.leave(partial(self._learn_in_turn, played))
        except Abandoned:
            raise DeadlineExceeded("no answer in time") from None
        except CansError as error:
            self._turns.leave(partial(self._session.judge, server, error))
            raise
        finally:
            self._requests.abandonment.end()
            self._playing.discard(id(job))
        return played.outputs

    def stay(
        self, inputs: Arrays, called: float, job: Job | None = None
    ) -> dict[str, Array] | None:
        """The answer of a device that stays local, without a turn; None: it needs one."""
        return self._staying.run(inputs, self._session.server, called, job)

    # --- the thread ---

    def run(self) -> None:
        until: float | None = None  # closing: uploads on the wire are given until then
        while True:
            work, events = self._turns.next(self._idle_seconds())
            try:
                for each in work:
                    self._guarded(each)
                if self._staying.active and not work:  # the time has come, or there is news
                    self._guarded(self._catch_up)
                self._guarded(partial(self._session.tend, events))
                if self._experience.learner is not None:  # not when someone waits for a choice
                    self._guarded(self._experience.learner.get_ready)
            finally:
                self._turns.worked()
            if self._experience.unwritten:  # before more is learned: a kill costs one observation
                self._turns.callers_first(_CALLERS_FIRST_SECONDS)
                self._guarded(self._experience.write)
            if self._turns.closed and not (self._playing or self._staying.unlearned):
                until = until or monotonic() + self._patience
                if self._turns.all_learned and (monotonic() > until or not self._unsettled()):
                    break
        self._guarded(self._catch_up)
        for played in self._late.values():
            self._guarded(partial(self._observe, played, played.measured))
        self._late.clear()
        self._guarded(self._session.leave)

    def _idle_seconds(self) -> float | None:
        """When to look again, if nothing happens before; None: there is no need to."""
        if self._turns.closed:
            return 0.02
        idle = self._session.idle_seconds()
        if not self._staying.active:
            return idle
        return LOOK_SECONDS if idle is None else min(idle, LOOK_SECONDS)

    @staticmethod
    def _guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:  # a bug in this package must not end the thread
            _log.exception("the agent failed at a task, and goes on")

    def _learn_in_turn(self, played: Round) -> None:
        """After an answer that had its turn: learn, and see whether the next needs one."""
        self._learn(played)
        if played.server is None and self._hooks.may_stay:
            self._staying.count(1)
            inputs = played.job.inputs
            self._permit(played.job.rows, {k: (v.shape, v.dtype) for k, v in inputs.items()})
        else:
            self._staying.end()

    def _catch_up(self) -> None:
        """Learn from what has run without a turn, and see whether more may."""
        found = self._staying.collect()
        if not found:
            return
        rounds = [self._requests.stayed(each) for each in found]
        for played in rounds[:-LEARNED_AT_ONCE]:
            self._explain_if_wanted(played)
        with self._experience.one_commit():
            self._experience.answered(len(rounds[:-LEARNED_AT_ONCE]))
            for played in rounds[-LEARNED_AT_ONCE:]:
                self._learn(played)
        self._last = rounds[-1].job
        self._staying.count(len(rounds))
        last = found[-1].permit
        self._permit(last.rows, last.inputs)

    def _permit(self, rows: PartitionTable | None, inputs: Signature) -> None:
        """Where the next choice is to stay here, requests like these need no turn for it."""
        server = self._session.server
        if self._work.wanted(server):
            return  # whose inputs it will be is seen by one that has its turn
        permit = self._requests.permit(server, self._session.why_not, rows, inputs)
        if permit is not None:
            self._staying.permit(permit)

    def _explain_if_wanted(self, played: Round) -> None:
        """Write the report of a run that is not learned from when somebody asks for it."""
        job = played.job
        explain = partial(self._guarded, partial(self._explain, played))
        job.hurry = partial(self._turns.leave_to_agent, explain)
        if job.wanted:  # before it could be asked in this way
            self._explain(played)

    def _explain(self, played: Round) -> Report:
        job = played.job
        if not job.report.done():
            self._experience.use_rows(job.rows)
            try:
                job.report.set_result(played.explain())
            except BaseException as error:
                job.report.set_exception(error)
        return job.report.result()

    def _learn(self, played: Round) -> None:
        """After an answer: explain it, judge the server, learn."""
        report = self._explain(played)
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
        if played.server is None:
            self._session.probe_if_wanted()
            self._work.offer(played.job, self._session.server)
        elif played.choice is not None:
            self._work.offer(played.job, played.server, played.choice.row)
            self._own_run.offer(played.job, played.choice.row)
        self._session.tell()

    def _replied_late(self, played: Round, pending: Pending[InferReply]) -> None:
        """In a thread of gRPC: the reply to a request that this device has answered itself."""
        self._turns.leave_to_agent(partial(self._learn_late, played, pending, perf_counter()))

    def _learn_late(self, played: Round, pending: Pending[InferReply], end: float) -> None:
        if self._late.pop(id(played), None) is None:
            return  # the device was closing, and did not wait for it
        server, measured, hung = played.server, played.measured, False
        assert server is not None
        assert played.asked is not None
        try:
            reply = pending.result()
            measured, hung = self._requests.late(played.asked, reply, end)
            played = replace(played, pools=reply.pools)
            self._session.answered(server, late=True)
        except CansError as error:
            self._session.never_answered(server, error)
        self._observe(played, measured, hung)

    def _observe(self, played: Round, measured: Measured, hung: bool = False) -> None:
        self._usage.used(played.front)
        terms = self._experience.terms
        if played.choice is None or terms is None or not self._hooks.learning:
            self._experience.answered()
            return
        self._experience.adopt(played.pools)
        self._experience.use_rows(played.job.rows)
        if measured.waited_ms is not None and self._hooks.told_by_server:
            self._experience.observe_wait(played.choice, measured.waited_ms)
        latencies = self._hooks.stopwatch.latencies(played.choice, measured)
        uploads = self._experience.observe(played.choice, latencies, self._clock.now(), hung)
        if uploads and terms.delivery == "immediate":
            self._session.deliver()

    # --- closing ---

    def settle(self, seconds: float) -> None:
        """Wait until all that was observed is learned, and what a server is there for has arrived:
        uploads and accounts."""
        self._hurry()
        self._turns.wait_until(lambda: not self._unsettled(), seconds)

    def _unsettled(self) -> bool:
        return self._session.waits or bool(self._late)

    def close(self, seconds: float = 1.0) -> None:
        """Answer what was begun, refuse the rest, learn what is there; what is on its way to a
        server, or from it, is given so long."""
        self._patience = seconds
        self._own_run.close()
        self._turns.close()
        if self.is_alive():
            background.join_patiently(self)
