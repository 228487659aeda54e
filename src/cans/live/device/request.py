"""One inference: choose, run the front-end, ask the server, and have an answer in any case.

`begin` is done in turn: the learner and the processor are used by one request at a time. `finish`
is not: while one request is on the link, the front-end of the next one runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from math import inf, nan
from time import monotonic, perf_counter

import numpy as np

from cans.errors import (
    CansError,
    DeadlineExceeded,
    InputError,
    RemoteProtocolError,
    Unreachable,
)
from cans.learning import Choice, PartitionTable
from cans.live.device.choice.accuracy import Accuracy
from cans.live.device.choice.choosing import Chooser
from cans.live.device.choice.deciding import Decided, Decisions
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.local import Abandoned, Abandonment, Exits, LocalRun, LocalRuns
from cans.live.device.options import DeviceOptions
from cans.live.device.reporting.report import Explainer, Why
from cans.live.device.round import Asked, Job, Round
from cans.live.device.servers.contact import Contact
from cans.live.device.staying import Permit, Signature, Stayed
from cans.live.device.timing import InFlight, LocalTimes, Measured, Patience, RemoteTimes, parted
from cans.live.split import Array, Arrays, FrontRun, SplitModel
from cans.live.wire.inference import InferHeader, InferReply, InferRequest, TensorMeta
from cans.live.wire.link import Pending

_RACED = "; answered when this device had begun to finish by itself"
_LATE = "the server did not answer as quickly as it used to; this device was first"


class Requests:
    """Plays the requests of one device."""

    def __init__(
        self,
        options: DeviceOptions,
        model: SplitModel,
        experience: Experience,
        contact: Contact,
        random: np.random.Generator,
        hooks: Hooks,
        times: LocalTimes,
        learner: AbstractContextManager[object],
    ) -> None:
        """`learner` is held while the learner is used."""
        self._options = options
        self._learner = learner
        self._model = model
        self._experience = experience
        self._contact = contact
        self._hooks = hooks
        self.accuracy = Accuracy(options, model, random, experience, contact.accounts)
        self._chooser = Chooser(options, experience, random, hooks, self.accuracy)
        self._explainer = Explainer(model, experience)
        self.abandonment = Abandonment()
        self.times = times  # of this device by itself
        self._remote_times = RemoteTimes()
        self._in_flight = InFlight()
        self._local = LocalRuns(model, Exits(model, options.exit), self.times)
        self._processor = threading.Lock()
        self.decisions = Decisions(
            options, model, experience, contact, self._chooser, hooks, self.times, self._in_flight,
            learner, self._processor,
        )  # fmt: skip
        self._hedger = ThreadPoolExecutor(1, thread_name_prefix="cans-hedge")

    def begin(self, job: Job, server: int | None, why_not: str) -> Asked | Round:
        """Choose and run the front-end; all of the model where that was chosen, or where no server
        is there: `why_not` says why."""
        job.begun = perf_counter()
        with self._learner:
            job.rows = self.rows(job.inputs)
        decided = self.decisions.decide(job, server, why_not)
        choice, why = decided.choice, decided.why
        if choice is None or choice.point == self._model.last:
            if not self._options.local:
                raise Unreachable(f"{why_not or 'no server'}; this device holds no back-end")
            return self._local_round(job, choice, why, decided)
        assert server is not None
        with self._processor:
            front = self.decisions.run_front(job, choice, decided)
            start = perf_counter()
            tensors = self._encoded(choice, front)
            ready = perf_counter()
        # By this device's own count: what the server's table says does not matter.
        too_much = self._too_much(sum(each.nbytes for each in tensors))
        if too_much:
            if not self._options.local:
                raise InputError(f"this choice would send {too_much}")
            return self._local_round(job, None, lambda: f"local: it would send {too_much}")
        with self._learner:
            request = InferRequest(self._header(choice, front), tensors)
        return Asked(job, choice, why, front, server, request, (ready - start) * 1e3, ready)

    def work(self, job: Job, choice: Choice, server: int) -> Asked | None:
        """Raw inputs for the server, whose answer nobody waits for; None: they may not travel."""
        front = self._model.executor.run_front(choice.point, job.inputs)
        start = perf_counter()
        tensors = self._encoded(choice, front)
        ready = perf_counter()
        if self._too_much(sum(each.nbytes for each in tensors)):
            return None
        request = InferRequest(self._header(choice, front), tensors)
        return Asked(job, choice, str, front, server, request, (ready - start) * 1e3, ready)

    def finish(self, asked: Asked) -> Round:
        """Ask the server. From when its reply is late, finish here: the first answer wins."""
        asked = replace(asked, ahead=self._in_flight.sent())
        try:
            return self._finish(asked)
        finally:
            self._in_flight.ended()

    def _finish(self, asked: Asked) -> Round:
        job = asked.job
        self._hooks.pace(asked.request.nbytes, job.deadline)
        patience = self._patience(asked)
        request = asked.request.with_patience(patience.give_up_after_s * 1e3)
        pending = self._contact.links[asked.server].infer(request, patience.give_up_after_s)
        try:
            try:
                wait = min(patience.hedge_after_s, job.deadline - monotonic() + 1.0)
                reply, note = pending.result(wait), ""
            except TimeoutError:
                own = self._race(asked, pending)
                if own is not None:
                    return self._fallen_back(asked, own, DeadlineExceeded(_LATE), pending)
                reply, note = pending.result(), _RACED
            return self._answered(asked, reply, note)
        except CansError as error:  # no answer, or one that is none
            if not self._options.local:
                raise
            own = self._rest(asked, job.given_up.is_set)
            if own is None:
                raise Abandoned from None
            return self._fallen_back(asked, own, error)

    def permit(
        self, server: int | None, why_not: str, rows: PartitionTable | None, inputs: Signature
    ) -> Permit | None:
        """To run the next requests here, if that is the next choice whatever comes between, and
        nothing but one session has to be run for it."""
        run = self._model.executor.whole_run() if self._options.local else None
        quick = 2.0 * self.times.rest(0) < self._options.deadline_ms / 1e3
        if run is None or self._options.exit or not quick or not self._chooser.is_steady:
            return None
        decided = self.decisions.at_once(rows, server, why_not)
        if decided is None:
            return None
        choice = decided.choice
        if choice is not None and choice.point != self._model.last:
            return None
        return Permit(choice, cache(decided.why), server, rows, inputs, run)

    def stayed(self, stayed: Stayed) -> Round:
        """A run by a permit, as one that had a turn."""
        permit, called, begun, end, alone, job = stayed
        job = job or Job({}, inf, called)
        job.begun, job.answered, job.rows = begun, end, permit.rows
        self.times.ran_whole(end - begun)
        settled = alone and not self._model.executor.building
        milliseconds = (end - begun) * 1e3
        measured = Measured(milliseconds if settled else None, 0.0, 0.0, milliseconds, 0.0)
        explain = partial(
            self._explainer.report, job, permit.choice, permit.why, measured, note="",
            point=self._model.last, front_ms=milliseconds,
        )  # fmt: skip
        return Round(job, {}, permit.choice, measured, explain, self._model.last)

    def _too_much(self, nbytes: int) -> str:
        """What of the user's limits so many bytes would break; empty: none."""
        most = self._options.constraints.max_bytes
        if most is not None and nbytes > most:
            return f"over {most} bytes (--max-bytes)"
        allowance = self._contact.allowance
        return "" if allowance.allows(nbytes) else f"more than is left: {allowance.why}"

    def rows(self, inputs: Arrays) -> PartitionTable | None:
        """The learner's rows for inputs of this size; None: all are alike."""
        learner = self._experience.learner
        if learner is None or self._model.rows is None:
            return None
        return self._model.rows.at(learner.table, inputs)

    def close(self) -> None:
        self._hedger.shutdown(wait=True, cancel_futures=True)

    # --- with the server ---

    def _patience(self, asked: Asked) -> Patience:
        point, row = asked.choice.point, asked.choice.row
        # Of a stream every request waits behind others: that is no reason to run it here as well,
        # which would take the processor from the front-ends of the next.
        streams = asked.ahead > 0 or not self._options.objective.is_latency
        hedges = self._hooks.hedges
        return Patience.of(
            left=asked.job.deadline - monotonic(),
            spent=perf_counter() - asked.job.begun,
            whole=self.times.whole if hedges and not streams else inf,
            rest=self.times.rest(point) if self._options.local else None,
            usual=self._remote_times.usual(row),
            # A wait that was told before is no reason to call the reply late.
            late=self._remote_times.late(row) * (1 + streams) + asked.choice.wait_ms / 1e3
            if hedges
            else inf,
            usual_rest=self.times.usual_rest(point),
        )

    def _race(self, asked: Asked, pending: Pending[InferReply]) -> LocalRun | None:
        """Finish in another thread, so that a reply or the deadline is noticed while a block runs;
        None: the reply came first."""
        changed, over = threading.Event(), threading.Event()
        own = self._hedger.submit(self._rest, asked, over.is_set)
        own.add_done_callback(lambda _: changed.set())
        pending.when_done(changed.set)
        try:
            while changed.wait(max(asked.job.deadline - monotonic(), 0.0)):
                changed.clear()
                if pending.answered():
                    return None
                if own.done():
                    return own.result()
        finally:
            over.set()
        raise Abandoned

    def _rest(self, asked: Asked, no_more: Callable[[], bool]) -> LocalRun | None:
        """What this device makes of the rest; None: it was given up between two blocks."""
        with self._processor:
            self.abandonment.begin(no_more)
            try:
                return self._local.rest(asked.choice.point, asked.front)
            except Abandoned:
                return None
            finally:
                self.abandonment.end()

    def _encoded(self, choice: Choice, front: FrontRun) -> list[memoryview]:
        codec = self._model.codecs[choice.point, choice.codec]
        wanted = self._model.points[choice.point].tensors
        return [memoryview(codec.encode(front.crossing[each.name])) for each in wanted]

    def _header(self, choice: Choice, front: FrontRun) -> InferHeader:
        learner, terms = self._experience.learner, self._experience.terms
        assert learner is not None
        assert terms is not None
        who = self._experience.state.identity
        later = terms.delivery == "next-contact"
        asking = terms.fresh_pools and not self._contact.watching  # then the reply brings them
        return InferHeader(
            who.device,
            who.incarnation,
            learner.table.digest,
            learner.table.version,
            choice.point,
            choice.codec,
            tuple(
                TensorMeta(each.name, each.dtype, front.crossing[each.name].shape)
                for each in self._model.points[choice.point].tensors
            ),
            self._experience.pending() if later else (),
            dict(self._experience.known) if asking else {},
            account=self._contact.accounts.riding(),
            trace=self._contact.traces.begin(),
        )

    def _answered(self, asked: Asked, reply: InferReply, note: str = "") -> Round:
        # The caller's own, to write to as to those of a local run; a reply's bytes are nobody's.
        received = {name: np.array(value) for name, value in reply.outputs.items()}
        outputs = {**received, **asked.front.outputs}
        self._check(outputs)
        end = perf_counter()
        self._contact.load.tell(asked.server, reply.load)
        self._count(asked, reply, end)
        measured = self.measure(asked, reply, end)
        # As it was, for people; what is learned is without what other requests cost this one.
        took_ms = (end - asked.ready) * 1e3
        link_ms, server_ms = parted(took_ms, reply.compute_ms, reply.queue_ms)
        explain = partial(
            self._explainer.report, asked.job, asked.choice, asked.why, measured, note=note,
            answered_by=self._contact.links[asked.server].server,
            front_ms=asked.front.seconds * 1e3 + asked.encoding_ms,
            link_ms=nan if link_ms is None else link_ms,
            server_ms=nan if server_ms is None else reply.compute_ms + reply.queue_ms,
            queue_ms=reply.queue_ms, bytes_up=asked.request.nbytes,
        )  # fmt: skip
        return Round(
            asked.job, outputs, asked.choice, measured, explain, asked.choice.point, asked.server,
            reply.pools, asked=asked,
        )  # fmt: skip

    def late(self, asked: Asked, reply: InferReply, end: float) -> tuple[Measured, bool]:
        """As `measure`, of a reply to what this device has answered by itself; and whether its link
        took as long as the server hung."""
        self._count(asked, reply, end, lost=True)
        return self.measure(asked, reply, end), self._remote_times.server_hangs

    def _count(self, asked: Asked, reply: InferReply, end: float, lost: bool = False) -> None:
        """Remember how long a reply took."""
        seconds = end - asked.ready
        self._remote_times.took(asked.choice.row, seconds, lost, typical=not reply.warming)

    def measure(self, asked: Asked, reply: InferReply, end: float) -> Measured:
        """What a reply that came at `end` teaches of its choice."""
        link_ms, server_ms = parted((end - asked.ready) * 1e3, reply.compute_ms, reply.queue_ms)
        waited_ms: float | None = None
        if link_ms is not None:
            link_ms, server_ms = self._in_flight.alone(
                asked.ready,
                end,
                link_ms,
                reply.compute_ms,
                reply.queue_ms,
                asked.ahead,
                self._contact.round_trip_ms,
            )
            learner = self._experience.learner
            if reply.load is not None and learner is not None and learner.crowd.heeded:
                # The wait is told: it is not to be learned.
                waited_ms, server_ms = server_ms - reply.compute_ms, reply.compute_ms
        if reply.warming:
            server_ms = None
        total_ms = (end - asked.job.begun) * 1e3
        return Measured(asked.front_ms, link_ms, server_ms, total_ms, waited_ms)

    def _check(self, outputs: dict[str, Array]) -> None:
        """Whatever a server sends, the caller gets the model's outputs."""
        if set(outputs) != set(self._model.outputs):
            raise RemoteProtocolError("the server answered with other outputs than the model has")
        for each in self._model.made:
            found = outputs[each.name]
            if found.dtype.name != each.dtype or not each.fits(found.shape):
                raise RemoteProtocolError(
                    f"the server answered with {found.dtype.name}{list(found.shape)[:8]} for "
                    f"output {each.name!r}, which is {each.dtype}{list(each.shape)}"
                )

    def _fallen_back(
        self, asked: Asked, own: LocalRun, failure: CansError,
        late: Pending[InferReply] | None = None,
    ) -> Round:  # fmt: skip
        end = perf_counter()
        if monotonic() > asked.job.deadline:
            raise DeadlineExceeded("this device could not finish in time")
        measured = Measured(asked.front_ms, None, None, (end - asked.job.begun) * 1e3)
        explain = partial(
            self._explainer.report, asked.job, asked.choice, asked.why, measured,
            note=_left_early(own), front_ms=asked.front.seconds * 1e3,
            fallback=str(failure), bytes_up=asked.request.nbytes,
        )  # fmt: skip
        outputs = {**asked.front.outputs, **own.outputs}
        return Round(
            asked.job, outputs, asked.choice, measured, explain, asked.choice.point, asked.server,
            failure=failure, late=late, asked=asked,
        )  # fmt: skip

    # --- without ---

    def _local_round(
        self, job: Job, choice: Choice | None, why: Why, begun: Decided | None = None
    ) -> Round:
        with self._processor:
            if begun is None or begun.front is None:
                run = self._local.whole(job.inputs)
            else:
                run = self._local.onward(begun.point, begun.front)
        end = perf_counter()
        elsewhere: float | None = 0.0  # what link and server took
        if run.exit:
            # Only its front-end is experience: what the rest would have taken is not known.
            with self._learner:
                choice, elsewhere = self._chooser.exited(run.point), None
        front_ms = run.steady_seconds * 1e3 if run.settled else None
        measured = Measured(front_ms, elsewhere, elsewhere, (end - job.begun) * 1e3, elsewhere)
        explain = partial(
            self._explainer.report, job, choice, why, measured, note=_left_early(run),
            point=run.point, front_ms=run.seconds * 1e3,
        )  # fmt: skip
        return Round(job, run.outputs, choice, measured, explain, self._local.first_stop)


def _left_early(run: LocalRun) -> str:
    return f"; left at exit {run.exit}" if run.exit else ""
