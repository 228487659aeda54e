"""One inference: choose, run the front-end, ask the server, and have an answer in any case."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import nan
from time import monotonic, perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cans.errors import (
    CansError,
    DeadlineExceeded,
    InputError,
    RemoteProtocolError,
    Unreachable,
)
from cans.learning import Choice, Context, DeviceLearner
from cans.live import wire
from cans.live.backend import outputs_in
from cans.live.contact import Contact, known_out
from cans.live.execution import Array, Arrays, FrontRun, SplitModel
from cans.live.exits import Exits
from cans.live.experience import Experience
from cans.live.link import Reply
from cans.live.options import DeviceOptions
from cans.live.proto import edge
from cans.live.report import Report, reason
from cans.live.request import Abandonment, Fallback
from cans.live.timing import LocalTimes, Measured, parted


@dataclass
class Job:
    """A request of the user, on its way through the agent's queue."""

    inputs: Arrays
    deadline: float  # on the monotonic clock
    future: Future[dict[str, Array]] = field(default_factory=Future)
    given_up: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Round:
    """An answered request and all there is to learn from it."""

    outputs: dict[str, Array]
    choice: Choice | None  # None: nothing was chosen, no server has set the terms yet
    measured: Measured
    report: Report
    pools: Any = ()  # downloads that came with the reply
    failure: CansError | None = None  # of the server
    settled: bool = True


class Rounds:
    """Plays rounds for one device."""

    def __init__(
        self,
        options: DeviceOptions,
        model: SplitModel,
        experience: Experience,
        contact: Contact,
        random: np.random.Generator,
    ) -> None:
        self._options = options
        self._model = model
        self._experience = experience
        self._contact = contact
        self._random = random
        self.abandonment = Abandonment()
        self.times = LocalTimes()
        self.fallback = Fallback(model.executor, self.times, options.local)
        self._exits = Exits(model, options.exits)
        self._measured_ms: Array = np.zeros(0)
        self.forced: int | None = None  # testbeds: take this choice, whatever the policy says

    def play(self, job: Job, server: int | None, time: float, why_not: str) -> Round:
        """Answer a request; `server` None: without one, and `why_not` says why."""
        begin = perf_counter()
        choice, why = self._choose(server, time, why_not)
        point = self._model.last if choice is None else choice.point
        if point == self._model.last and not self._options.local:
            raise Unreachable(f"{why_not or 'no server'}; this device holds no back-end")
        exit_ = self._exits.earliest if point == self._model.last else None
        front = self._model.executor.run_front(point if exit_ is None else exit_, job.inputs)
        if exit_ is not None:
            return self._continue_past_exits(job, choice, why, exit_, front, begin)
        if point == self._model.last:
            self.times.ran_whole(front.seconds)
            return self._local_round(choice, why, front.outputs, front, point, begin)
        assert choice is not None
        assert server is not None
        return self._remote_round(job, choice, why, front, server, begin)

    # --- choosing ---

    def _choose(self, server: int | None, time: float, why_not: str) -> tuple[Choice | None, str]:
        learner = self._experience.learner
        if learner is None:
            return None, why_not or "no server has set the terms yet"
        table = learner.table
        if self.forced is not None and (server is not None or self.forced == table.local):
            row = self.forced
            forced = Choice(row, table.point_of[row], table.codec_of[row], nan, 0.0)
            return forced, "the testbed asked for it"
        allowed = self._allowed(learner, server)
        normals = self._random.standard_normal(sum(len(getattr(table, s)[0]) for s in
                                                   ("front", "link", "server")))  # fmt: skip
        context = Context(
            time=time, uniform=float(self._random.random()), normals=normals, allowed=allowed
        )
        choice = learner.select(context)
        if not allowed[choice.row]:  # policies that do not ask what is allowed
            row = int(allowed.argmax())
            choice = Choice(row, table.point_of[row], table.codec_of[row], nan, 0.0)
        if server is None:
            return choice, why_not
        return choice, reason(choice, learner.predictions()[0], table)

    def _allowed(self, learner: DeviceLearner, server: int | None) -> NDArray[np.bool_]:
        """Which choices may be taken now: by the user's constraints, and by who is there."""
        constraints, table = self._options.constraints, learner.table
        expected = None if constraints.deadline_ms is None else learner.predictions()[0]
        allowed = constraints.allowed(table, expected)
        if server is None:
            allowed[:] = False
            allowed[table.local] = True
        elif not self._options.local:
            allowed[table.local] = False
            if not allowed.any():
                raise InputError("the constraints leave a device without a local model no choice")
        return allowed

    # --- with the server ---

    def _remote_round(
        self, job: Job, choice: Choice, why: str, front: FrontRun, server: int, begin: float
    ) -> Round:
        sent = perf_counter()
        point = self._model.points[choice.point]
        codec = self._model.codecs[choice.point, choice.codec]
        tensors = [_view(codec.encode(front.crossing[each.name])) for each in point.tensors]
        self._contact.pace.wait(sum(each.nbytes for each in tensors), job.deadline)
        header = self._header(choice)
        seconds = self.fallback.patience(choice.point, job.deadline)
        header.patience_ms = seconds * 1e3
        try:
            reply = self._contact.links[server].infer(header, tensors, seconds)
            return self._answered(choice, why, front, reply, tensors, server, begin, sent)
        except CansError as error:  # no answer in time, or one that is none
            if not self._options.local:
                raise
            rest = self.fallback.finish(choice.point, front.crossing, job.deadline)
            return self._fallen_back(
                choice, why, {**front.outputs, **rest}, front, error, tensors, begin
            )

    def _header(self, choice: Choice) -> Any:
        learner, terms = self._experience.learner, self._experience.terms
        assert learner is not None
        assert terms is not None
        who = self._experience.state.identity
        header = edge.InferHeader(
            device=who.device,
            incarnation=who.incarnation,
            model=learner.table.digest,
            table=learner.table.version,
            point=choice.point,
            codec=choice.codec,
            tensors=[
                edge.TensorMeta(name=each.name, dtype=each.dtype, shape=each.shape)
                for each in self._model.points[choice.point].tensors
            ],
        )
        if terms.delivery == "next-contact":
            header.uploads.extend(map(wire.upload_out, self._experience.pending()))
        if terms.fresh_pools:
            header.known.extend(known_out(self._experience.known))
        return header

    def _answered(
        self, choice: Choice, why: str, front: FrontRun, reply: Reply,
        tensors: list[memoryview], server: int, begin: float, sent: float,
    ) -> Round:  # fmt: skip
        received = outputs_in(reply.header.tensors, reply.tensors)
        outputs = {**front.outputs, **received}
        if set(outputs) != set(self._model.outputs):
            raise RemoteProtocolError("the server answered with other outputs than the model has")
        end = perf_counter()
        header = reply.header
        link_ms, server_ms = parted((end - sent) * 1e3, header.compute_ms + header.queue_ms)
        measured = Measured(
            front.steady_seconds * 1e3 if front.settled else None,
            link_ms,
            None if header.warming else server_ms,
            (end - begin) * 1e3,
        )
        report = self._report(
            choice, why, front, measured, begin, end,
            answered_by=self._contact.links[server].server,
            link_ms=nan if link_ms is None else link_ms,
            server_ms=nan if server_ms is None else server_ms,
            queue_ms=header.queue_ms, bytes_up=sum(each.nbytes for each in tensors),
        )  # fmt: skip
        return Round(outputs, choice, measured, report, header.pools, settled=front.settled)

    def _fallen_back(
        self, choice: Choice, why: str, outputs: dict[str, Array], front: FrontRun,
        failure: CansError | None, tensors: list[memoryview], begin: float,
    ) -> Round:  # fmt: skip
        end = perf_counter()
        front_ms = front.steady_seconds * 1e3 if front.settled else None
        measured = Measured(front_ms, None, None, (end - begin) * 1e3)
        report = self._report(
            choice, why, front, measured, begin, end, fallback=str(failure),
            bytes_up=sum(each.nbytes for each in tensors),
        )  # fmt: skip
        return Round(outputs, choice, measured, report, failure=failure, settled=front.settled)

    # --- without ---

    def _local_round(
        self, choice: Choice | None, why: str, outputs: dict[str, Array], front: FrontRun,
        point: int, begin: float, rest: float | None = 0.0,
    ) -> Round:  # fmt: skip
        end = perf_counter()
        front_ms = front.steady_seconds * 1e3 if front.settled else None
        measured = Measured(front_ms, rest, rest, (end - begin) * 1e3)
        report = self._report(choice, why, front, measured, begin, end, point=point)
        return Round(outputs, choice, measured, report, settled=front.settled)

    def _continue_past_exits(
        self, job: Job, choice: Choice | None, why: str, point: int, front: FrontRun, begin: float
    ) -> Round:
        """A local run that looks at its early exits on the way."""
        sure = self._exits.sure(front.outputs)
        if sure:
            why = f"{why}; left at exit {sure}"
            taken = self._exits.as_choice(point, self._experience.learner)
            # Only its front-end is experience: what the rest would have taken is not known.
            rest = None
            return self._local_round(taken, why, front.outputs, front, point, begin, rest)
        outputs = {**front.outputs, **self.fallback.finish(point, front.crossing, job.deadline)}
        end = perf_counter()
        front_ms = (end - begin) * 1e3 if front.settled else None
        self.times.ran_whole(end - begin)
        measured = Measured(front_ms, 0.0, 0.0, (end - begin) * 1e3)
        report = self._report(choice, why, front, measured, begin, end, front_ms=front_ms or nan)
        return Round(outputs, choice, measured, report, settled=front.settled)

    # --- telling ---

    def _report(
        self, choice: Choice | None, why: str, front: FrontRun, measured: Measured,
        begin: float, end: float, *, point: int | None = None, **more: Any,
    ) -> Report:  # fmt: skip
        learner = self._experience.learner
        if point is None:
            point = self._model.last if choice is None else choice.point
        table = predictions = None
        if learner is not None and choice is not None:
            table = learner.table
            if len(self._measured_ms) != table.choices:
                self._measured_ms = np.full(table.choices, nan)
            predictions = learner.predictions() if learner.policy.parts else None
        fields: dict[str, Any] = {
            "codec": choice.codec if choice else "float32",
            "answered_by": "device",
            "predicted_ms": choice.predicted_ms if choice else nan,
            "width_ms": choice.width_ms if choice else nan,
            "front_ms": front.seconds * 1e3,
            "link_ms": nan,
            "server_ms": nan,
            "queue_ms": nan,
            "bytes_up": 0,
            "fallback": "",
        }
        report = Report(
            number=self._experience.state.inferences + 1, point=point,
            point_name=self._model.points[point].name, why=why,
            total_ms=(end - begin) * 1e3, learned=measured.front_ms is not None,
            predictions=predictions, measured=self._measured_ms.copy(), table=table,
            **{**fields, **more},
        )  # fmt: skip
        if choice is not None and not report.fallback:
            self._measured_ms[choice.row] = report.total_ms
        return report


def _view(data: bytes | memoryview) -> memoryview:
    return data if isinstance(data, memoryview) else memoryview(data)


def expired(job: Job) -> DeadlineExceeded | None:
    """Why a job must not be begun any more."""
    if job.given_up.is_set() or monotonic() >= job.deadline:
        return DeadlineExceeded("the deadline passed while earlier requests were running")
    return None
