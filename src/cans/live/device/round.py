"""One request as it goes on: a job, then asked of a server, then a round to learn from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import perf_counter

from cans.errors import CansError
from cans.learning import Choice, PartitionTable
from cans.live.device.reporting.report import Report, Why
from cans.live.device.timing import Measured
from cans.live.split import Array, Arrays, FrontRun
from cans.live.wire.inference import InferReply, InferRequest
from cans.live.wire.link import Pending
from cans.live.wire.messages import PoolUpdate


@dataclass
class Job:
    """A request of the user."""

    inputs: Arrays
    deadline: float  # on the monotonic clock
    called: float = field(default_factory=perf_counter)
    begun: float = 0.0  # when its turn came, by the performance counter as `called`
    answered: float = 0.0  # when its caller was handed the answer; before the agent learns of it
    rows: PartitionTable | None = None  # the learner's, for inputs of this size; None: all alike
    given_up: threading.Event = field(default_factory=threading.Event)
    report: Future[Report] = field(default_factory=Future)
    hurry: Callable[[], None] | None = None  # has the agent write the report at once
    wanted: bool = False  # somebody asks for it

    def explained(self) -> Report:
        """The report; it is written after the answer, so this may wait for a moment."""
        self.wanted = True
        if self.hurry is not None and not self.report.done():
            self.hurry()
        return self.report.result()


@dataclass(frozen=True)
class Asked:
    """A request whose front-end has run and whose back-end the server is asked for."""

    job: Job
    choice: Choice
    why: Why
    front: FrontRun
    server: int
    request: InferRequest
    encoding_ms: float  # writing tensors is the device's work: it counts as front-end time
    ready: float  # when they were written, by the performance counter
    ahead: int = 0  # requests of this device that were on their way then

    @property
    def front_ms(self) -> float | None:
        """As it is learned; None: not typical."""
        return self.front.steady_seconds * 1e3 + self.encoding_ms if self.front.settled else None


@dataclass(frozen=True)
class Round:
    """An answered request and all there is to learn from it."""

    job: Job
    outputs: dict[str, Array]
    choice: Choice | None  # None: nothing was chosen, no server has set the terms yet
    measured: Measured
    explain: Callable[[], Report]  # to be called before anything is learned from it
    front: int  # the point to which the front-end ran in one piece
    server: int | None = None  # that was asked
    pools: tuple[PoolUpdate, ...] = ()  # that came with the reply
    failure: CansError | None = None  # of the server
    late: Pending[InferReply] | None = None  # a reply that may still come
    asked: Asked | None = None

    @property
    def trace(self) -> str:
        """As its request carried it; empty: none was sent, or nobody traces."""
        return "" if self.asked is None else self.asked.request.header.trace
