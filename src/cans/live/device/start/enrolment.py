"""A device accepts the terms of a server: its group, its offline runs, its first uploads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import numpy as np

from cans.errors import CansError, StoreError
from cans.learning import Upload
from cans.live.clock import Clock
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.request import Requests
from cans.live.device.servers.contact import Contact
from cans.live.device.servers.route import Route
from cans.live.device.start.startup import offline_runs
from cans.live.device.start.statefile import StateWriter
from cans.live.device.turns import Turns
from cans.live.split import SplitModel
from cans.live.wire.messages import Welcome


@dataclass(frozen=True)
class Enrolment:
    """What a device does before its first request, and again when terms change."""

    local: bool  # whether it holds the back-end too
    model: SplitModel
    experience: Experience
    contact: Contact
    route: Route
    clock: Clock
    writer: StateWriter
    requests: Requests
    turns: Turns
    random: np.random.Generator
    hooks: Hooks

    def accept(self, server: int, welcome: Welcome) -> None:
        """Take these terms, and deliver the offline runs that they ask for."""
        welcome = self._with_group(server, welcome)
        self.experience.accept(welcome)
        self.clock.follow(welcome.time)
        if self.experience.needs_offline:
            uploads = self._begin()
            try:
                if self.writer.flush():  # else the agent delivers them when the disk takes them
                    who = self.experience.state.identity
                    again = self.contact.join(server, who, self.model.digest, uploads)
                    self.experience.accept(again)
            except StoreError:
                pass  # the agent will deliver them
            except CansError:
                self.route.join_failed(server, monotonic())
                return  # the agent will deliver them
        self.route.joined(server)

    def begin_between_requests(self) -> tuple[Upload, ...]:
        """New terms for a device in use: its offline runs give way to the first request."""
        abandonment = self.requests.abandonment
        abandonment.begin(lambda: self.turns.wanted)
        try:
            return self._begin()
        finally:
            abandonment.end()

    def _with_group(self, server: int, welcome: Welcome) -> Welcome:
        """The welcome with the group that the server finds for a device of this speed."""
        if welcome.group or not welcome.terms.policy.grouped or not self.contact.whole_ms:
            return welcome
        with suppress(CansError):  # the agent will ask again
            who = self.experience.state.identity
            return self.contact.join(server, who, self.model.digest)
        return welcome

    def _begin(self) -> tuple[Upload, ...]:
        learner = self.experience.learner
        assert learner is not None
        runs = offline_runs(self.model, learner, self.random, self.requests.times, self.local)
        return self.experience.start(self.hooks.stopwatch.offline(runs))
