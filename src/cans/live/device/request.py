"""One inference: choose, run the front-end, ask the server, and have an answer in any case."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from math import nan
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from cans.errors import (
    CansError,
    DeadlineExceeded,
    RemoteProtocolError,
    Unreachable,
)
from cans.learning import Choice
from cans.live.device.choosing import Chooser
from cans.live.device.contact import Contact
from cans.live.device.deadline import Abandonment, Patience
from cans.live.device.exits import Exits
from cans.live.device.experience import Experience
from cans.live.device.hedge import Hedger
from cans.live.device.local import LocalRun, LocalRuns
from cans.live.device.options import DeviceOptions
from cans.live.device.report import Report, Why
from cans.live.device.timing import LocalTimes, Measured, parted
from cans.live.split import Array, Arrays, FrontRun, SplitModel
from cans.live.wire.inference import InferHeader, InferReply, InferRequest, TensorMeta
from cans.live.wire.messages import PoolUpdate

_RACED = "; answered when this device had begun to finish by itself"


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
    tell: Callable[[], Report]  # explains it; to be called before anything is learned from it
    front: int  # the point to which the front-end ran in one piece
    pools: tuple[PoolUpdate, ...] = ()  # that came with the reply
    failure: CansError | None = None  # of the server


@dataclass(frozen=True)
class Cargo:
    """What leaves the device. Writing it is the device's work, so it counts as front-end time."""

    tensors: list[memoryview]
    encoding_ms: float
    ready: float  # when it was written, by the performance counter

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.tensors)

    def front_ms(self, front: FrontRun) -> float | None:
        return front.steady_seconds * 1e3 + self.encoding_ms if front.settled else None


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
        self.chooser = Chooser(options, experience, random)
        self.abandonment = Abandonment()
        self.times = LocalTimes()
        self._local = LocalRuns(model, Exits(model, options.exits), self.times)
        self._hedger = Hedger(self.abandonment)
        self._measured_ms: Array = np.zeros(0)

    def play(self, job: Job, server: int | None, why_not: str) -> Round:
        """Answer a request; `server` None: without one, and `why_not` says why."""
        self._hedger.rest(job.deadline)
        begin = perf_counter()
        choice, why = self.chooser.choose(server, why_not)
        if choice is None or choice.point == self._model.last:
            if not self._options.local:
                raise Unreachable(f"{why_not or 'no server'}; this device holds no back-end")
            return self._local_round(job, choice, why, begin)
        assert server is not None
        front = self._model.executor.run_front(choice.point, job.inputs)
        return self._remote_round(job, choice, why, front, server, begin)

    def close(self) -> None:
        self._hedger.close()

    # --- with the server ---

    def _remote_round(
        self, job: Job, choice: Choice, why: Why, front: FrontRun, server: int, begin: float
    ) -> Round:
        cargo = self._encoded(choice, front)
        self._contact.pace.wait(cargo.nbytes, job.deadline)
        rest = self.times.rest(choice.point) if self._options.local else None
        patience = Patience.by(job.deadline, rest)
        header = self._header(choice, patience.until_none * 1e3)
        request = InferRequest(header, cargo.tensors)
        link = self._contact.links[server]
        if not self._options.local:
            reply = link.infer(request, patience.until_none)
            outputs = self._outputs(front, reply)
            return self._answered(choice, why, front, reply, outputs, cargo, server, begin)
        work = partial(self._local.rest, choice.point, front)
        with self._hedger.arm(patience.until_own, work) as hedge:
            try:
                reply = link.infer(request, patience.until_none)
                outputs = self._outputs(front, reply)
            except CansError as error:  # no answer in time, or one that is none
                own = hedge.result(job.deadline)
                return self._fallen_back(job, choice, why, own, front, error, cargo, begin)
            note = _RACED if hedge.drop() else ""
            return self._answered(choice, why, front, reply, outputs, cargo, server, begin, note)

    def _encoded(self, choice: Choice, front: FrontRun) -> Cargo:
        begin = perf_counter()
        codec = self._model.codecs[choice.point, choice.codec]
        wanted = self._model.points[choice.point].tensors
        tensors = [_view(codec.encode(front.crossing[each.name])) for each in wanted]
        ready = perf_counter()
        return Cargo(tensors, (ready - begin) * 1e3, ready)

    def _outputs(self, front: FrontRun, reply: InferReply) -> dict[str, Array]:
        """All of the model's, from both halves."""
        outputs = {**front.outputs, **reply.outputs}
        if set(outputs) != set(self._model.outputs):
            raise RemoteProtocolError("the server answered with other outputs than the model has")
        return outputs

    def _header(self, choice: Choice, patience_ms: float) -> InferHeader:
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
            tuple(map(TensorMeta.of, self._model.points[choice.point].tensors)),
            self._experience.pending() if later else (),
            self._experience.known if asking else {},
            patience_ms=patience_ms,
            account=self._contact.accounts.riding(),
        )

    def _answered(
        self, choice: Choice, why: Why, front: FrontRun, reply: InferReply,
        outputs: dict[str, Array], cargo: Cargo, server: int, begin: float, note: str = "",
    ) -> Round:  # fmt: skip
        end = perf_counter()
        link_ms, server_ms = parted((end - cargo.ready) * 1e3, reply.compute_ms + reply.queue_ms)
        measured = Measured(
            cargo.front_ms(front),
            link_ms,
            None if reply.warming else server_ms,
            (end - begin) * 1e3,
        )
        tell = partial(
            self._report, choice, why, front, measured, note=note,
            answered_by=self._contact.links[server].server,
            link_ms=nan if link_ms is None else link_ms,
            server_ms=nan if server_ms is None else server_ms,
            queue_ms=reply.queue_ms, bytes_up=cargo.nbytes,
            front_ms=front.seconds * 1e3 + cargo.encoding_ms,
        )  # fmt: skip
        return Round(outputs, choice, measured, tell, choice.point, reply.pools)

    def _fallen_back(
        self, job: Job, choice: Choice, why: Why, own: LocalRun, front: FrontRun,
        failure: CansError, cargo: Cargo, begin: float,
    ) -> Round:  # fmt: skip
        end = perf_counter()
        if monotonic() > job.deadline:
            raise DeadlineExceeded("this device could not finish in time")
        measured = Measured(cargo.front_ms(front), None, None, (end - begin) * 1e3)
        tell = partial(
            self._report, choice, why, front, measured, note=_left_early(own),
            fallback=str(failure), bytes_up=cargo.nbytes,
        )  # fmt: skip
        outputs = {**front.outputs, **own.outputs}
        return Round(outputs, choice, measured, tell, choice.point, failure=failure)

    # --- without ---

    def _local_round(self, job: Job, choice: Choice | None, why: Why, begin: float) -> Round:
        run = self._local.whole(job.inputs)
        end = perf_counter()
        elsewhere: float | None = 0.0  # what link and server took
        if run.exit:
            # Only its front-end is experience: what the rest would have taken is not known.
            choice, elsewhere = self.chooser.exited(run.point), None
        front_ms = run.steady_seconds * 1e3 if run.settled else None
        measured = Measured(front_ms, elsewhere, elsewhere, (end - begin) * 1e3)
        tell = partial(
            self._report, choice, why, run, measured, note=_left_early(run), point=run.point,
        )  # fmt: skip
        return Round(run.outputs, choice, measured, tell, self._local.first_stop)

    # --- telling ---

    def _report(
        self, choice: Choice | None, why: Why, front: FrontRun | LocalRun, measured: Measured,
        *, note: str, point: int | None = None, **more: Any,
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
            point_name=self._model.points[point].name, why=why() + note,
            total_ms=measured.total_ms, learned=measured.front_ms is not None,
            predictions=predictions, measured=self._measured_ms.copy(), table=table,
            **{**fields, **more},
        )  # fmt: skip
        if choice is not None and measured.link_ms is not None:
            self._measured_ms[choice.row] = report.total_ms
        return report


def _left_early(run: LocalRun) -> str:
    return f"; left at exit {run.exit}" if run.exit else ""


def _view(data: bytes | memoryview) -> memoryview:
    return data if isinstance(data, memoryview) else memoryview(data)


def expired(job: Job) -> DeadlineExceeded | None:
    """Why a job must not be begun any more."""
    if job.given_up.is_set() or monotonic() >= job.deadline:
        return DeadlineExceeded("the deadline passed while earlier requests were running")
    return None
