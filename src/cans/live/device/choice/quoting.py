"""Asking a server that many use how long a request would wait, before one is sent.

What everybody was told at the same time makes a fleet move as one. A question is answered one after
the other, and each answer counts the places that were given before. It is asked only where the wait
may vary by more than the question takes; a front-end runs meanwhile, if one is to be run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic

from cans.errors import CansError
from cans.learning import Choice, DeviceLearner
from cans.learning.congestion import Load
from cans.live.device.hooks import Hooks
from cans.live.device.servers.contact import Contact
from cans.live.wire.link import Pending
from cans.live.wire.load import QuoteReply, QuoteRequest

LEAST_MS = 1.0  # that a question takes, whatever the probes say
PATIENCE, PATIENCE_S = 3.0, 0.02  # round trips, or seconds, that an answer is waited for ...
SHARE = 0.25  # ... and this share of a local run at most
LOCAL_SHARE = 0.02  # of a run that is likely to stay here: so much a question may cost
ON_ITS_WAY_MS = 100.0  # a place is held so much longer than the way to the server should take


@dataclass(frozen=True)
class Question:
    """A quote on its way."""

    server: int
    model: str  # digest
    reply: Pending[QuoteReply]
    asked_at: float  # monotonic


class Quotes:
    """The questions of one device. Used by whoever has the turn."""

    def __init__(self, contact: Contact, hooks: Hooks, device: str) -> None:
        self._contact = contact
        self._hooks = hooks
        self._device = device
        self._silent_at = -inf  # when the last question was not answered in time
        self._last: Choice | None = None  # that was sent to a server
        self._withdrawing: Pending[QuoteReply] | None = None  # gRPC cancels what nobody holds
        self.asked = self.unanswered = 0

    def wanted(
        self, server: int | None, load: Load | None, learner: DeviceLearner, choice: Choice | None
    ) -> bool:
        """Whether to ask before this choice stands."""
        if server is None or load is None or choice is None or not learner.crowd.heeded:
            return False
        if self._hooks.force is not None or not self._hooks.told_by_server:
            return False
        if self._contact.load.at <= self._silent_at:  # not heard of since a question was lost
            return False
        takes = self.takes_ms
        if choice.row == learner.table.local and takes > LOCAL_SHARE * choice.predicted_ms:
            return False
        return learner.crowd.worth_asking(load, takes)

    @property
    def takes_ms(self) -> float:
        return max(self._contact.round_trip_ms, LEAST_MS)

    def ask(self, server: int, learner: DeviceLearner, choice: Choice) -> Question:
        """Ask, and have a place kept for what is likely to be sent."""
        if choice.row != learner.table.local:
            self._last = choice
        likely = self._last or choice
        point = 0 if likely.row == learner.table.local else likely.point
        codec = learner.table.codec_of[0] if likely.row == learner.table.local else likely.codec
        expected, served = learner.predictions()[0], learner.part_predictions("server")[0]
        way_ms = float(expected[likely.row] - served[likely.row])
        digest = learner.table.digest
        request = QuoteRequest(self._device, digest, point, codec, 2.0 * way_ms + ON_ITS_WAY_MS)
        self.asked += 1
        return Question(server, digest, self._contact.links[server].quote(request), monotonic())

    def answer(self, question: Question, local_s: float, stays: bool = False) -> Load | None:
        """The load by the answer, which is waited for as `PATIENCE` says and a share of a local run
        at most, a small one if it `stays` here anyway; None: it did not come, and nothing more is
        asked until the server says something."""
        most_s = (2.0 * LOCAL_SHARE if stays else SHARE) * local_s
        seconds = min(max(PATIENCE * self.takes_ms / 1e3, PATIENCE_S), most_s)
        left = max(question.asked_at + seconds - monotonic(), 0.0)
        try:
            load = question.reply.result(left).load
        except (CansError, TimeoutError):
            self._silent_at = monotonic()
            self.unanswered += 1
            return None
        self._contact.load.tell(question.server, load)
        return load

    def withdraw(self, question: Question) -> None:
        """Nothing will be sent after all. Nobody waits for what the server says to that."""
        request = QuoteRequest(self._device, question.model, withdrawn=True)
        self._withdrawing = self._contact.links[question.server].quote(request)
