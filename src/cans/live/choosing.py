"""Asking the learner where to cut, among the choices that may be taken now."""

from __future__ import annotations

from math import nan

import numpy as np
from numpy.typing import NDArray

from cans.errors import InputError
from cans.learning import Choice, Context, DeviceLearner
from cans.live.experience import Experience
from cans.live.options import DeviceOptions
from cans.live.report import reason


class Chooser:
    """Makes the choices of one device."""

    def __init__(
        self, options: DeviceOptions, experience: Experience, random: np.random.Generator
    ) -> None:
        self._options = options
        self._experience = experience
        self._random = random
        self.forced: int | None = None  # testbeds: take this choice, whatever the policy says

    def choose(self, server: int | None, time: float, why_not: str) -> tuple[Choice | None, str]:
        """A choice and why; None: nobody has set the terms yet."""
        learner = self._experience.learner
        if learner is None:
            return None, why_not or "no server has set the terms yet"
        table = learner.table
        if self.forced is not None and (server is not None or self.forced == table.local):
            return _unpredicted(learner, self.forced), "the testbed asked for it"
        allowed = self._allowed(learner, server)
        normals = self._random.standard_normal(sum(len(getattr(table, s)[0]) for s in
                                                   ("front", "link", "server")))  # fmt: skip
        context = Context(
            time=time, uniform=float(self._random.random()), normals=normals, allowed=allowed
        )
        choice = learner.select(context)
        if not allowed[choice.row]:  # policies that do not ask what is allowed
            choice = _unpredicted(learner, int(allowed.argmax()))
        if server is None:
            return choice, why_not
        return choice, reason(choice, learner.predictions()[0], table)

    def exited(self, point: int) -> Choice | None:
        """The choice whose front-end has run when a local run left early: it is experience with
        that one. None: there is none."""
        learner = self._experience.learner
        if learner is None or point not in learner.table.point_of:
            return None
        return _unpredicted(learner, learner.table.point_of.index(point))

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


def _unpredicted(learner: DeviceLearner, row: int) -> Choice:
    return Choice(row, learner.table.point_of[row], learner.table.codec_of[row], nan, 0.0)
