"""Real work for a server of which nobody has told for a while: the raw input, beside an answer that
was made here, or with little help of the server.

When everybody has left a server because it was slow, or leaves it next to nothing to do, small
exchanges do not say that it is well again. The server lets one device of the fleet try at a time
(`QuoteRequest.work`), and nobody waits for the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic, perf_counter

from cans.errors import CansError
from cans.learning import Choice
from cans.live.clock import Clock
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.options import DeviceOptions
from cans.live.device.request import Requests
from cans.live.device.round import Asked, Job
from cans.live.device.servers.contact import Contact
from cans.live.wire.inference import InferReply
from cans.live.wire.link import Pending
from cans.live.wire.load import QuoteReply, QuoteRequest

BETWEEN_S = 1.0  # between two questions whether work is welcome
GIVE_UP_S = 10.0  # for an answer that nobody waits for


class RealWork:
    """Used by the agent."""

    def __init__(
        self,
        options: DeviceOptions,
        experience: Experience,
        contact: Contact,
        requests: Requests,
        hooks: Hooks,
        clock: Clock,
        later: Callable[[Callable[[], None]], None],
        deliver: Callable[[], None],
    ) -> None:
        """`later` leaves something to the agent; `deliver` has uploads sent."""
        self._options = options
        self._experience = experience
        self._contact = contact
        self._requests = requests
        self._hooks = hooks
        self._clock = clock
        self._later = later
        self._deliver = deliver
        self._asking: Pending[QuoteReply] | None = None
        self._working: Pending[InferReply] | None = None
        self._next = 0.0
        self.sent = 0

    def wanted(self, server: int | None, row: int | None = None) -> bool:
        """Whether this device should ask to send some, beside an answer that was made here or by
        this choice."""
        learner, hooks = self._experience.learner, self._hooks
        if server is None or learner is None or not hooks.told_by_server:
            return False
        if not hooks.learning or hooks.force is not None or self._contact.load.now(server) is None:
            return False
        busy = self._asking is not None or self._working is not None or monotonic() < self._next
        if busy or not learner.trials.wants_work(self._clock.now(), row):
            return False
        return self._choice() is not None

    def _choice(self) -> Choice | None:
        """What it would be sent with; None: the raw input may not leave this device."""
        learner = self._experience.learner
        if learner is None:
            return None
        row, table = learner.trials.work_choice, learner.table
        allowed = bool(self._options.constraints.allowed(table, learner.predictions()[0])[row])
        return Choice(row, table.point_of[row], table.codec_of[row], 0.0, 0.0) if allowed else None

    def offer(self, job: Job, server: int | None, row: int | None = None) -> None:
        """After an answer that was made here, or with this choice."""
        if server is None or not job.inputs or not self.wanted(server, row):
            return
        learner = self._experience.learner
        assert learner is not None
        device = self._experience.state.identity.device
        every_ms = 1e3 * learner.trials.work_every_s
        asked = QuoteRequest(device, learner.table.digest, hold_ms=every_ms, work=True)
        self._next = monotonic() + BETWEEN_S
        self._asking = self._contact.links[server].quote(asked)
        self._asking.when_done(partial(self._later, partial(self._answered, job, server)))

    def _answered(self, job: Job, server: int) -> None:
        asking, self._asking = self._asking, None
        choice = self._choice()
        try:
            if asking is None or choice is None or not asking.result(0.0).granted:
                return
        except (CansError, TimeoutError):
            return
        asked = self._requests.work(job, choice, server)
        if asked is None:
            return
        self.sent += 1
        self._working = working = self._contact.links[server].infer(asked.request, GIVE_UP_S)
        working.when_done(lambda: self._later(partial(self._worked, asked, perf_counter())))

    def _worked(self, asked: Asked, end: float) -> None:
        working, self._working = self._working, None
        assert working is not None
        try:
            reply = working.result(0.0)
        except (CansError, TimeoutError):
            return  # requests judge the server
        self._contact.load.tell(asked.server, reply.load)
        self._experience.adopt(reply.pools)
        measured = self._requests.measure(asked, reply, end)
        link_ms = None if self._hooks.pace_mbps is not None else measured.link_ms
        latencies = measured._replace(front_ms=None, link_ms=link_ms).latencies()
        self._experience.use_rows(asked.job.rows)
        if self._experience.observe_work(asked.choice, latencies, self._clock.now()):
            self._deliver()
