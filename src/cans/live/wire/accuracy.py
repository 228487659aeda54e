"""How far lossy codecs may change an answer, and what comparisons with the whole model showed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from cans.errors import InputError, RemoteProtocolError
from cans.live.wire.proto import edge

MOST_ROWS = 4096
_ENOUGH = 5  # comparisons before a share of agreements means something
_MOST_COUNTED = 1 << 40


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

    def and_also(self, other: AccuracyBudget) -> AccuracyBudget:
        """What keeps this budget and another one.

        >>> AccuracyBudget(0.1).and_also(AccuracyBudget(0.2, 0.99))
        AccuracyBudget(max_error=0.1, min_agreement=0.99, share=0.02)
        """
        errors = [each for each in (self.max_error, other.max_error) if each is not None]
        shares = [each for each in (self.min_agreement, other.min_agreement) if each is not None]
        return AccuracyBudget(
            min(errors, default=None), max(shares, default=None), max(self.share, other.share)
        )


@dataclass(frozen=True)
class Compared:
    """What comparisons of one choice with the whole model showed, all together."""

    row: int  # of the partition table
    count: int = 0
    worst_error: float = 0.0  # the largest difference
    judged: int = 0  # of them, where a largest output could be told
    agreed: float = 0.0  # of those, with the same largest output

    def plus(self, error: float, agreement: float | None) -> Compared:
        """With one more."""
        judged = agreement is not None
        return Compared(
            self.row,
            self.count + 1,
            max(self.worst_error, error),
            self.judged + judged,
            self.agreed + (agreement or 0.0),
        )

    def and_also(self, other: Compared) -> Compared:
        """With those of somebody else."""
        return Compared(
            self.row,
            self.count + other.count,
            max(self.worst_error, other.worst_error),
            self.judged + other.judged,
            self.agreed + other.agreed,
        )

    def breaks(self, budget: AccuracyBudget) -> bool:
        if budget.max_error is not None and self.worst_error > budget.max_error:
            return True
        least = budget.min_agreement
        return least is not None and self.judged >= _ENOUGH and self.agreed < least * self.judged


def compared_out(found: Iterable[Compared]) -> list[Any]:
    return [edge.Compared(**asdict(each)) for each in found]


def compared_in(messages: Any) -> tuple[Compared, ...]:
    """Comparisons as they came in: of choices that can be, finite, shares that are shares."""
    if len(messages) > MOST_ROWS:
        raise RemoteProtocolError(f"comparisons of {len(messages)} choices")
    found = tuple(
        Compared(each.row, each.count, each.worst_error, each.judged, each.agreed)
        for each in messages
    )
    for each in found:
        sane = each.row < MOST_ROWS and each.judged <= each.count < _MOST_COUNTED
        real = isfinite(each.agreed) and each.worst_error >= 0.0
        if not sane or not real or not 0.0 <= each.agreed <= each.judged:
            raise RemoteProtocolError(f"a comparison that cannot be: {each}")
    return found
