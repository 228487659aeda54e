"""A device that stays local: its next runs wait for nobody.

Where the learner chose to run here, and would again, the agent permits the next few requests to do
so too: without a turn, a choice or a wake-up of the agent, which looks at all of them a moment
later. A device that has stayed for long is permitted many. On the caller's path there is nothing
but the run: after a model that fills the caches, every function that is called costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from cans.learning import Choice, PartitionTable
from cans.live.device.reporting.report import Why
from cans.live.device.round import Job
from cans.live.split import Array, Arrays, WholeRun

LOOK_SECONDS = 0.1  # between looks of the agent at what has run
LEARNED_AT_ONCE = 4  # of the runs of one look; the rest is like them, and only counted
_SHARE = 4  # of the runs in a row, one in so many may come before the next look

Signature = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and type of each input."""


@dataclass(frozen=True, eq=False)
class Permit:
    """To run here, as the learner chose; under no other circumstances than these."""

    choice: Choice | None
    why: Why
    server: int | None  # that was usable
    rows: PartitionTable | None  # for inputs of this size
    inputs: Signature
    run: WholeRun

    def fits(self, inputs: Arrays) -> bool:
        """Whether these inputs are as those that were chosen for."""
        if len(inputs) != len(self.inputs):
            return False
        for name, value in inputs.items():
            wanted = self.inputs.get(name)
            if type(value) is not np.ndarray or (value.shape, value.dtype) != wanted:
                return False
        return True


class Stayed(NamedTuple):
    """A run by a permit."""

    permit: Permit
    called: float  # by the performance counter
    begun: float  # when the model began to run
    end: float
    alone: bool  # nothing else ran or was built: it took as long as it takes
    job: Job | None  # None: nobody will ask for its report


class Staying:
    """Hands out permits and collects what was run with them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._permit: Permit | None = None
        self._left = 0
        self._streak = 0
        self._running = self._begun = 0
        self._unlearned: list[Stayed] = []

    @property
    def active(self) -> bool:
        """Whether the agent should look before long."""
        return self._permit is not None or bool(self._unlearned)

    @property
    def unlearned(self) -> bool:
        """Whether there are runs that the agent has not looked at, or will be."""
        return bool(self._unlearned or self._running)

    def run(
        self, inputs: Arrays, server: int | None, called: float, job: Job | None
    ) -> dict[str, Array] | None:
        """The outputs by a permit; None: there is none for this request, it needs a turn."""
        permit = self._permit
        if permit is None or permit.server != server or not permit.fits(inputs):
            return None
        with self._lock:
            if self._left == 0 or self._permit is not permit:
                return None
            self._left -= 1
            self._begun += 1
            self._running += 1
            others, number = self._running - 1, self._begun
        begun = perf_counter()
        try:
            outputs = permit.run(inputs)
            end = perf_counter()
            alone = not others and number == self._begun
            self._unlearned.append(Stayed(permit, called, begun, end, alone, job))
        finally:
            with self._lock:
                self._running -= 1
        return outputs

    def collect(self) -> list[Stayed]:
        """What was run since the last look; no permit is valid from now on."""
        with self._lock:
            self._permit, self._left = None, 0
            found, self._unlearned = self._unlearned, []
            return found

    def count(self, runs: int) -> None:
        """So many more were run here in a row."""
        self._streak += runs

    def end(self) -> None:
        """A request was sent, or something went wrong."""
        with self._lock:
            self._permit, self._left, self._streak = None, 0, 0

    def permit(self, permit: Permit) -> None:
        """Runs like these may go on until the next look."""
        with self._lock:
            self._permit, self._left = permit, self._streak // _SHARE
