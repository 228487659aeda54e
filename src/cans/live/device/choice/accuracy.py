"""What lossy codecs cost: some answers are compared with the whole model's, in the background.

A choice whose codec changes the answer by more than the user or the server allows is not taken any
more. The first answers of every choice are compared, then a small share of them; the server is
told, and tells devices that join later what the fleet has found.
"""

from __future__ import annotations

from threading import Lock

import numpy as np

from cans.errors import CansError
from cans.learning import Choice, PartitionTable
from cans.learning.arithmetic.arrays import BoolArray
from cans.live.device.experience import Experience
from cans.live.device.options import DeviceOptions
from cans.live.device.reporting.accounts import Accounts
from cans.live.split import Arrays, SplitModel
from cans.live.wire.accuracy import AccuracyBudget, Compared
from cans.models.run import background
from cans.models.tools.comparing import error, top1_agreement

_FIRST = 3  # answers of a choice that are all compared

Key = tuple[int, str]  # point and codec


class Accuracy:
    """Keeps one device within its budget and its server's. Thread-safe."""

    def __init__(
        self,
        options: DeviceOptions,
        model: SplitModel,
        random: np.random.Generator,
        experience: Experience,
        accounts: Accounts,
    ) -> None:
        self._options = options
        self._model = model
        self._random = random
        self._experience = experience
        self._accounts = accounts
        self._lock = Lock()
        self._seen: dict[Key, Compared] = {}  # by this device
        self._found: frozenset[Key] = frozenset()  # by this device, to break the budget
        self._fleet: tuple[tuple[Compared, ...], frozenset[Key]] = ((), frozenset())
        self._busy = False

    @property
    def budget(self) -> AccuracyBudget:
        """What keeps the device's budget and the server's."""
        terms = self._experience.terms
        own = self._options.accuracy
        return own if terms is None else own.and_also(terms.accuracy)

    @property
    def out(self) -> frozenset[Key]:
        """Points and codecs that break the budget."""
        return self._found | self._out_for_the_fleet()

    def _out_for_the_fleet(self) -> frozenset[Key]:
        compared, learner = self._experience.compared, self._experience.learner
        if not compared or learner is None:
            return frozenset()
        if self._fleet[0] is not compared:
            table, budget = learner.table, self.budget
            broken = (each.row for each in compared if each.breaks(budget))
            rows = [row for row in broken if row < table.local]
            keys = frozenset((table.point_of[row], table.codec_of[row]) for row in rows)
            self._fleet = (compared, keys)
        return self._fleet[1]

    def worst_error(self, point: int, codec: str) -> float | None:
        """The largest difference that this device saw; None: it never looked."""
        with self._lock:
            found = self._seen.get((point, codec))
        return None if found is None else found.worst_error

    def restrict(self, allowed: BoolArray, table: PartitionTable) -> None:
        """Take what breaks the budget out of these choices; running here always stays."""
        out = self.out
        if not out:
            return
        for row in range(table.local):
            if (table.point_of[row], table.codec_of[row]) in out:
                allowed[row] = False

    def note(self) -> str:
        """What to add to an explanation."""
        out = self.out
        if not out:
            return ""
        names = sorted(f"{self._model.points[p].name} ({codec})" for p, codec in out)
        return f"; out for their accuracy: {', '.join(names[:4])}{', ...' * (len(names) > 4)}"

    def watch(self, choice: Choice, inputs: Arrays, outputs: Arrays) -> None:
        """Perhaps compare an answer that came by a lossy codec; returns at once."""
        key, budget = (choice.point, choice.codec), self.budget
        lossy = self._model.codecs[key].lossy
        if not budget.wanted or not lossy or not self._options.local:
            return
        with self._lock:
            seen = self._seen.get(key)
            due = seen is None or seen.count < _FIRST or self._random.random() < budget.share
            if self._busy or not due:
                return
            self._busy = True
        kept = {name: np.array(value) for name, value in inputs.items()}
        background.start(lambda: self._compare(choice, kept, dict(outputs)), "cans-accuracy")

    def _compare(self, choice: Choice, inputs: Arrays, outputs: Arrays) -> None:
        try:
            whole = self._model.executor.run_front(self._model.last, inputs).outputs
            difference, agreement = error(outputs, whole), top1_agreement(outputs, whole)
        except CansError:  # the device is closing, or cannot run it: nothing was shown
            return
        finally:
            with self._lock:
                self._busy = False
        key = choice.point, choice.codec
        with self._lock:
            seen = self._seen.get(key, Compared(choice.row)).plus(difference, agreement)
            self._seen[key] = seen
            if seen.breaks(self.budget):
                self._found |= {key}
        self._accounts.compared(Compared(choice.row).plus(difference, agreement))
