"""The choice of one request: by what the server told of its load, or after asking it.

While a question is on its way, the front-end runs to where it is likely to be cut; what has run
stays run, and the choice is among what comes after.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import NamedTuple

from cans.learning import Choice, PartitionTable
from cans.learning.congestion import Load
from cans.live.device.choice.choosing import Chooser
from cans.live.device.choice.quoting import Question, Quotes
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.options import DeviceOptions
from cans.live.device.reporting.report import Why
from cans.live.device.round import Job
from cans.live.device.servers.contact import Contact
from cans.live.device.timing import InFlight, LocalTimes
from cans.live.split import Array, FrontRun, SplitModel


class Decided(NamedTuple):
    """A choice, why, and how far the front-end has run while it was made."""

    choice: Choice | None  # None: nobody has set the terms yet
    why: Why
    point: int = 0
    front: FrontRun | None = None  # up to that point


class Decisions:
    """Decides for the requests of one device."""

    def __init__(
        self,
        options: DeviceOptions,
        model: SplitModel,
        experience: Experience,
        contact: Contact,
        chooser: Chooser,
        hooks: Hooks,
        times: LocalTimes,
        in_flight: InFlight,
        learner: AbstractContextManager[object],
        processor: threading.Lock,
    ) -> None:
        """`learner` and `processor` are held while they are used."""
        self._options = options
        self._model = model
        self._experience = experience
        self._told = contact.load
        self._chooser = chooser
        self._hooks = hooks
        self._times = times
        self._in_flight = in_flight
        self._learner = learner
        self._processor = processor
        self.quotes = Quotes(contact, hooks, experience.state.identity.device)

    def decide(self, job: Job, server: int | None, why_not: str) -> Decided:
        """Where to cut this request."""
        with self._learner:
            likely, question = self._by_what_was_told(job.rows, server, why_not)
        return likely if question is None else self._reconsidered(job, likely, question)

    def at_once(
        self, rows: PartitionTable | None, server: int | None, why_not: str
    ) -> Decided | None:
        """The choice of requests like these; None: the server has to be asked for each."""
        load = self._load(server)
        choice, why = self._chooser.choose(server, why_not, rows, load)
        return None if self._asks_first(server, load, choice) else Decided(choice, why)

    def _by_what_was_told(
        self, rows: PartitionTable | None, server: int | None, why_not: str
    ) -> tuple[Decided, Question | None]:
        load = self._load(server)
        choice, why = self._chooser.choose(server, why_not, rows, load)
        learner = self._experience.learner
        if learner is None or choice is None or server is None:
            return Decided(choice, why), None
        asks = self._asks_first(server, load, choice)
        return Decided(choice, why), self.quotes.ask(server, learner, choice) if asks else None

    def _load(self, server: int | None) -> Load | None:
        return self._hooks.told(self._told.now(server))

    def _asks_first(self, server: int | None, load: Load | None, choice: Choice | None) -> bool:
        learner = self._experience.learner
        # Of a stream every request waits behind others of its own: there is nothing to ask.
        alone = self._in_flight.none and self._options.objective.is_latency
        return learner is not None and alone and self.quotes.wanted(server, load, learner, choice)

    def _reconsidered(self, job: Job, likely: Decided, question: Question) -> Decided:
        """The choice by the answer to a question; as it was if none comes."""
        assert likely.choice is not None
        point, front = likely.choice.point, None
        if 0 < point < self._model.last:
            with self._processor:
                front = self._model.executor.run_front(point, job.inputs)
        begun = 0 if front is None else point
        local_s = self._times.whole if self._options.local and self._times.whole else inf
        stays = point == self._model.last
        load = self.quotes.answer(question, min(local_s, job.deadline - monotonic()), stays)
        if load is None:
            return likely._replace(point=begun, front=front)
        with self._learner:
            choice, why = self._chooser.choose(question.server, "", job.rows, load, begun)
            if choice is not None and choice.point == self._model.last:
                self.quotes.withdraw(question)
        return Decided(choice, lambda: f"{why()}; asked first", begun, front)

    def run_front(self, job: Job, choice: Choice, decided: Decided) -> FrontRun:
        """The front-end of a choice, of which a stretch may have run already."""
        executor, point, front = self._model.executor, decided.point, decided.front
        if front is None:
            return executor.run_front(choice.point, job.inputs)
        if point == choice.point:
            return front
        return Onward(front, executor.run_on(point, choice.point, front.crossing))


@dataclass(frozen=True)
class Onward:
    """A front-end that was run in two stretches: to where it was likely to be cut, and on."""

    first: FrontRun
    second: FrontRun

    @property
    def seconds(self) -> float:
        return self.first.seconds + self.second.seconds

    @property
    def steady_seconds(self) -> float:
        return self.first.steady_seconds + self.second.steady_seconds

    @property
    def settled(self) -> bool:
        return self.first.settled and self.second.settled

    @property
    def outputs(self) -> dict[str, Array]:
        return {**self.first.outputs, **self.second.outputs}

    @property
    def crossing(self) -> dict[str, Array]:
        return self.second.crossing
