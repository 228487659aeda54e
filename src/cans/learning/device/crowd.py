"""What others at its server mean to a device: waits, tolls, questions, and a habit of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import numpy as np

from cans.learning.arithmetic.arrays import Array, LearnerState
from cans.learning.choice import Choice, Context
from cans.learning.congestion import Habit, Load, Overrun, toll, wait_at_arrival, worth_asking
from cans.learning.device.part import PartLearner
from cans.learning.policies import Policy
from cans.learning.table import PartitionTable

NEW = 12
"""Inferences after which the utilisation that a server tells, an average over seconds, says
something of a fleet that began when the device did."""


class Crowd:
    """What a device makes of the load that its server tells.

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
        self._local = table.local
        self._state = state
        self._server = parts.get("server")
        self._get_ready = get_ready
        self.heeded = policy.load_aware and self._server is not None
        """Whether the server's time is to be learned without the wait, which is told."""
        self._overrun = Overrun()
        self._habit = Habit()
        self._made_here = 0  # inferences by this learner: it begins anew with a process or a server

    # --- choosing ---

    def charge(self, load: Load | None, share: float = 1.0) -> Array | None:
        """(2, choices) wait and toll of every choice in ms, by what the server told and the share
        of the toll that counts; None: nobody waits, or this policy has not heard of it."""
        if load is None or load.workers == inf or self._server is None or not self.heeded:
            return None
        others = share > 0.0 and load.joined > 1 and load.arrivals > 0.0
        if load.wait_ms == 0.0 and not others and load.joined <= 1:
            return None
        mean, number = self._state.mean[0], self._server.number
        service = mean[number]
        way = mean.sum(axis=0) - service  # before a request is at the server
        expected = wait_at_arrival(load, np.maximum(way, 0.0)) + self._beyond(load)
        wait = np.where(self._state.informative[number], expected, 0.0)
        return np.stack([wait, share * toll(service, load)])

    def _beyond(self, load: Load) -> float:
        """By how much a request will wait longer than it was told."""
        return self._overrun.milliseconds if load.joined > 1 else 0.0

    def settled(self, best: int, scores: Array, fees: Array, context: Context) -> int:
        """The choice of last time, unless it is not allowed or the best is clearly better."""
        before, load, allowed = self._habit.taken, context.load, context.allowed
        if load is None or before is None or (allowed is not None and not allowed[before]):
            return best
        return self._habit.choose(best, scores, fees, load, context.uniform)

    def charged(self, choice: Choice, charge: Array, load: Load | None) -> Choice:
        """The choice with what was assumed of the wait (and how much of it is overrun) and the
        toll."""
        wait, fee = (float(each) for each in charge[:, choice.row])
        return choice._replace(
            predicted_ms=choice.predicted_ms + wait,
            width_ms=choice.width_ms + wait + fee,
            wait_ms=wait,
            overrun_ms=0.0 if load is None else min(self._beyond(load), wait),
            toll_ms=fee,
        )

    # --- what came of it ---

    def observe_wait(self, choice: Choice, waited_ms: float) -> None:
        """How long a request waited for a worker, beside what was assumed when it was chosen."""
        if not self.heeded:
            return
        self._made_here += 1
        if not choice.looked:  # a look is no change of one's mind
            self._habit.took(choice.row)
        if choice.row == self._local:
            self._overrun.stayed()
        else:
            self._overrun.waited(choice.wait_ms - choice.overrun_ms, waited_ms)

    # --- asking ---

    def worth_asking(self, load: Load, round_trip_ms: float) -> bool:
        """Whether to ask the server for its present wait, which takes so long, before choosing."""
        if not self.heeded:
            return False
        return worth_asking(load, self.server_ms, round_trip_ms, self.gain_ms, self.newcomer)

    @property
    def newcomer(self) -> bool:
        """Whether it cannot know yet how busy the server usually is."""
        return self._made_here < NEW

    @property
    def server_ms(self) -> float:
        """What the server is expected to compute for the raw input; 0: not known."""
        if self._server is None:
            return 0.0
        self._get_ready()
        return float(self._state.mean[0, self._server.number, 0])

    @property
    def gain_ms(self) -> float:
        """How much sooner an answer is expected with the server than without, if nobody waits."""
        self._get_ready()
        mean = self._state.mean[0].sum(axis=0)
        return float(mean[-1] - mean[:-1].min()) if len(mean) > 1 else 0.0
