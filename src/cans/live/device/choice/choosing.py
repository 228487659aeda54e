"""Asking the learner where to cut, among the choices that may be taken now."""

from __future__ import annotations

from math import nan

import numpy as np

from cans.errors import InputError
from cans.learning import Choice, Context, DeviceLearner, PartitionTable
from cans.learning.arithmetic.arrays import Array, BoolArray
from cans.learning.congestion import Load
from cans.learning.policies import Choose
from cans.learning.table import SEGMENTS
from cans.live.device.choice.accuracy import Accuracy
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.options import DeviceOptions
from cans.live.device.reporting.report import Why, reason


class Chooser:
    """Makes the choices of one device."""

    def __init__(
        self,
        options: DeviceOptions,
        experience: Experience,
        random: np.random.Generator,
        hooks: Hooks,
        accuracy: Accuracy,
    ) -> None:
        self._accuracy = accuracy
        self._options = options
        self._hooks = hooks
        self._experience = experience
        self._random = random
        self._lasting: tuple[PartitionTable, BoolArray] | None = None  # what is always allowed

    def choose(
        self,
        server: int | None,
        why_not: str,
        rows: PartitionTable | None = None,
        load: Load | None = None,
        from_point: int = 0,
    ) -> tuple[Choice | None, Why]:
        """A choice and why; None: nobody has set the terms yet. `rows`: the features of the moment,
        where they depend on the size of the input. `load`: of the server. `from_point`: so much of
        the front-end has run."""
        learner = self._experience.learner
        if learner is None:
            return None, lambda: why_not or "no server has set the terms yet"
        if rows is not None:
            learner.use_rows(rows)
        table = learner.table
        forced = self._hooks.force
        if forced is not None and (server is not None or forced == table.local):
            return _unpredicted(learner, forced), lambda: "the testbed asked for it"
        charge = None if server is None else learner.crowd.charge(load, self._options.toll)
        allowed = self._allowed(learner, server, charge)
        if from_point:
            allowed &= np.asarray(table.point_of) >= from_point
        normals: Array | None = None
        if learner.policy.choose is Choose.SAMPLED:
            normals = self._random.standard_normal((table.columns(SEGMENTS).shape[1],))
        context = Context(
            uniform=float(self._random.random()), normals=normals, allowed=allowed,
            load=None if server is None else load, toll=self._options.toll,
        )  # fmt: skip
        choice = learner.select(context)
        if not allowed[choice.row]:  # policies that do not ask what is allowed
            choice = _unpredicted(learner, int(allowed.argmax()))
        if server is None:
            return choice, lambda: why_not
        note = self._accuracy.note()
        return (
            choice,
            lambda: reason(choice, learner.predictions()[0], table, charge, allowed) + note,
        )

    @property
    def is_steady(self) -> bool:
        """Whether a choice stands until something is learned: not where it is left to chance, or
        to a count of rounds."""
        learner = self._experience.learner
        if learner is None:
            return True
        policy = learner.policy
        return policy.choose is Choose.OPTIMISTIC and not (
            policy.forced_sampling or policy.key_frames
        )

    def exited(self, point: int) -> Choice | None:
        """The choice whose front-end has run when a local run left early: it is experience with
        that one. None: there is none."""
        learner = self._experience.learner
        if learner is None or point not in learner.table.point_of:
            return None
        return _unpredicted(learner, learner.table.point_of.index(point))

    def _allowed(
        self, learner: DeviceLearner, server: int | None, charge: Array | None
    ) -> BoolArray:
        """Which choices may be taken now: by the user's constraints, and by who is there."""
        constraints, table = self._options.constraints, learner.table
        if constraints.avoid_after_ms is None:
            if self._lasting is None or self._lasting[0] is not table:
                self._lasting = table, constraints.allowed(table)
            allowed = self._lasting[1].copy()
        else:
            waits = 0.0 if charge is None else charge[0]
            allowed = constraints.allowed(table, learner.predictions()[0] + waits)
        self._accuracy.restrict(allowed, table)
        if server is not None and not self._options.objective.is_latency:
            allowed = self._serving(learner, allowed)
        if server is None:
            allowed[:] = False
            allowed[table.local] = True
        elif not self._options.local:
            allowed[table.local] = False
            if not allowed.any():
                raise InputError("the constraints leave a device without a local model no choice")
        return allowed

    def _serving(self, learner: DeviceLearner, allowed: BoolArray) -> BoolArray:
        if not self._options.local:
            allowed[learner.table.local] = False
        bottleneck = learner.bottlenecks()
        if bottleneck is None or not allowed.any():  # this policy cannot tell: by latency
            return allowed
        return self._options.objective.serving(bottleneck, allowed)


def _unpredicted(learner: DeviceLearner, row: int) -> Choice:
    return Choice(row, learner.table.point_of[row], learner.table.codec_of[row], nan, 0.0)
