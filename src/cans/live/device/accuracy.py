"""What lossy codecs cost: some answers are compared with the whole model's, in the background.

A choice whose codec changes the answer by more than the user allows is not taken any more. The
first answers of every choice are compared, then a small share of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from cans.errors import CansError, InputError
from cans.learning import Choice, PartitionTable
from cans.learning.arithmetic.arrays import BoolArray
from cans.live.split import Arrays, SplitModel
from cans.models.run import background
from cans.models.tools.comparing import error, top1_agreement

_FIRST = 3  # answers of a choice that are all compared
_ENOUGH = 5  # comparisons before a share of agreements means something


@dataclass(frozen=True)
class AccuracyBudget:
    """How far lossy codecs may change an answer."""

    max_error: float | None = None  # largest difference, relative to the largest output (or 1)
    min_agreement: float | None = None  # share of answers with the same largest output
    share: float = 0.02  # of answers that are compared

    def __post_init__(self) -> None:
        if self.max_error is not None and not self.max_error > 0:
            raise InputError("--max-error must be positive")
        if self.min_agreement is not None and not 0 < self.min_agreement <= 1:
            raise InputError("--min-agreement must be a share above 0, at most 1")

    @property
    def wanted(self) -> bool:
        return self.max_error is not None or self.min_agreement is not None


@dataclass
class Seen:
    """What comparisons of one point and codec showed."""

    errors: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)

    def breaks(self, budget: AccuracyBudget) -> bool:
        if budget.max_error is not None and max(self.errors, default=0.0) > budget.max_error:
            return True
        enough = len(self.agreements) >= _ENOUGH
        least = budget.min_agreement
        return least is not None and enough and float(np.mean(self.agreements)) < least


class Accuracy:
    """Keeps one device within its budget. Thread-safe."""

    def __init__(
        self, budget: AccuracyBudget, model: SplitModel, random: np.random.Generator
    ) -> None:
        self.budget = budget
        self._model = model
        self._random = random
        self._lock = Lock()
        self._seen: dict[tuple[int, str], Seen] = {}
        self._out: frozenset[tuple[int, str]] = frozenset()
        self._busy = False

    @property
    def out(self) -> frozenset[tuple[int, str]]:
        """Points and codecs that break the budget."""
        return self._out

    def errors_of(self, point: int, codec: str) -> tuple[float, ...]:
        with self._lock:
            return tuple(self._seen.get((point, codec), Seen()).errors)

    def restrict(self, allowed: BoolArray, table: PartitionTable) -> None:
        """Take what breaks the budget out of these choices; running here always stays."""
        for row in range(table.local):
            if (table.point_of[row], table.codec_of[row]) in self._out:
                allowed[row] = False

    def note(self) -> str:
        """What to add to an explanation."""
        if not self._out:
            return ""
        names = sorted(f"{self._model.points[p].name} ({codec})" for p, codec in self._out)
        return f"; out for their accuracy: {', '.join(names[:4])}{', ...' * (len(names) > 4)}"

    def watch(self, choice: Choice, inputs: Arrays, outputs: Arrays) -> None:
        """Perhaps compare an answer that came by a lossy codec; returns at once."""
        key = choice.point, choice.codec
        if not self.budget.wanted or not self._model.codecs[key].lossy:
            return
        with self._lock:
            count = len(self._seen.get(key, Seen()).errors)
            due = count < _FIRST or self._random.random() < self.budget.share
            if self._busy or not due:
                return
            self._busy = True
        kept = {name: np.array(value) for name, value in inputs.items()}
        background.start(lambda: self._compare(key, kept, dict(outputs)), "cans-accuracy")

    def _compare(self, key: tuple[int, str], inputs: Arrays, outputs: Arrays) -> None:
        try:
            whole = self._model.executor.run_front(self._model.last, inputs).outputs
            difference, agreement = error(outputs, whole), top1_agreement(outputs, whole)
        except CansError:  # the device is closing, or cannot run it: nothing was shown
            return
        finally:
            with self._lock:
                self._busy = False
        with self._lock:
            seen = self._seen.setdefault(key, Seen())
            seen.errors.append(difference)
            if agreement is not None:
                seen.agreements.append(agreement)
            if seen.breaks(self.budget):
                self._out |= {key}
