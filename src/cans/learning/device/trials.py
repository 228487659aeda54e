"""What a device tries beside its answers, for nobody but the learner: when it should, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import numpy as np

from cans.learning.arithmetic import idle
from cans.learning.arithmetic.arrays import BoolArray, LearnerState
from cans.learning.arithmetic.layout import raw_choices
from cans.learning.device.part import PartLearner
from cans.learning.policies import Policy
from cans.learning.table import PartitionTable

SOONER, FASTER_BY = 0.1, 0.5
"""A server that answers in less than half the expected time is asked again ten times as soon."""


class Trials:
    """When to time an exchange, send real work or run the whole model here, although no answer
    needs it: what is not played is not observed, and may have changed.

    `get_ready` brings the estimates up to date.
    """

    def __init__(
        self,
        table: PartitionTable,
        policy: Policy,
        state: LearnerState,
        parts: Mapping[str, PartLearner],
        get_ready: Callable[[], None],
    ) -> None:
        self._policy = policy
        self._state = state
        self._parts = parts
        self._get_ready = get_ready
        self._worked_at = 0.0  # when this device last saw the server do most of the model
        self._hopeful = False  # the last that was heard of the server was much faster than expected
        self.use_rows(table)

    def use_rows(self, table: PartitionTable) -> None:
        """The state has the rows of this table now."""
        self._table = table
        self._light = self._light_choices()

    def _light_choices(self) -> BoolArray:
        part = self._parts.get("server")
        if part is None:
            return np.ones(self._table.choices, dtype=np.bool_)
        return idle.hardly_for_server(self._state.rows[part.number])

    def is_light(self, row: int) -> bool:
        """Whether a choice leaves the server so little that its time says nothing of the rest."""
        return bool(self._light[row])

    # --- what was seen ---

    def begin(self, time: float) -> None:
        """The front-end is taken to have run until now, if it is not known when it did."""
        if self._state.physics.used and self._state.physics.ran[0] == 0.0:
            self._state.physics.ran[0] = time

    def note_front(self, row: int, time: float) -> None:
        """The device has run its part of a choice."""
        idle.note_run(self._state, 0, row, time)

    def note_server(self, row: int, latency: float, time: float) -> None:
        """The server has taken so many milliseconds for its part, and they are not learned yet."""
        if "server" in self._parts and not self.is_light(row):
            number = self._parts["server"].number
            self._worked_at = max(time, self._worked_at)
            self._hopeful = latency < FASTER_BY * float(self._state.mean[0, number, row])

    # --- timed exchanges ---

    def wants_probe(self, time: float) -> bool:
        """Whether to time the smallest exchange of `table.probe`: this device stays local, and has
        neither used its link nor heard of it for a while."""
        part = self._parts.get("link")
        if part is None or self._table.probe is None:
            return False
        return bool(time - self._state.heard[0, part.number] > self._policy.probe_after_s)

    def wants_all_probes(self) -> bool:
        """Whether to time every exchange of `table.probe` when it arrives at a server."""
        has_link = "link" in self._parts and self._table.probe is not None
        return has_link and self._policy.probe_after_s < inf

    # --- the whole model, here or there ---

    def wants_own_run(self, time: float, row: int) -> bool:
        """Whether to run the whole model here for its own sake, beside an answer made by a choice
        (`row`): the front-end has been idle for long, or since it was found to have changed."""
        every = self._policy.probe_after_s
        return every < inf and idle.wants_own_run(self._state, 0, row, time, every)

    def wants_server_run(self, time: float, row: int, worked: float) -> bool:
        """The same of the server, which last did most of the work for anybody when it `worked`. For
        servers where nobody waits; `wants_work` for those that tell their load."""
        every = self._policy.probe_after_s
        return every < inf and idle.wants_server_run(self._state, 0, row, worked, time, every)

    def wants_work(self, time: float, row: int | None = None) -> bool:
        """Whether to send real work beside an answer that was made here, or by a choice (`row`)
        that leaves the server little. Here: nobody has told of the server for a while, and a small
        exchange says nothing about it. With little for the server: it was found to have changed,
        and this device has not seen since what it takes for more. Sooner while the last that was
        heard was faster than expected: it may be well again."""
        part = self._parts.get("server")
        if part is None or not self._policy.load_aware or self._policy.probe_after_s == inf:
            return False
        if row is None or row == self._table.local:
            return bool(time - self._state.heard[0, part.number] > self.work_every_s)
        changed = part.epoch > 0 and self.is_light(row)
        return changed and time - self._worked_at > self.work_every_s

    @property
    def work_every_s(self) -> float:
        """Seconds of silence after which real work is sent."""
        return self._policy.probe_after_s * (SOONER if self._hopeful else 1.0)

    @property
    def work_choice(self) -> int:
        """The choice that real work is sent with: the raw input, in the codec that is at the server
        soonest. What the server takes for it has no say in that: it is what is in doubt."""
        self._get_ready()
        raw = raw_choices(self._state, self._table)
        return idle.soonest_at_server(self._state, 0, self._parts["server"].number, raw)
