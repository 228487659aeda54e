"""`Bar`: a sentence that our own policy must hold. Held, missed or, with few seeds, undecided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cans.simulation.reproduce.claims.verdicts import Check


@dataclass(frozen=True)
class Bar:
    """One sentence that must hold."""

    id: str
    text: str
    checks: Sequence[Check]
    few_seeds: bool = False  # then what was not refuted was not missed

    @property
    def verdict(self) -> str:
        if not self.checks:
            return "not run"
        if all(check.holds for check in self.checks):
            return "held"
        return "missed" if self.missed else "undecided"

    @property
    def missed(self) -> list[Check]:
        """The statements that do not hold, without those that too few seeds leave open."""
        return [each for each in self.checks if not each.holds and each not in self.undecided]

    @property
    def undecided(self) -> list[Check]:
        return [each for each in self.checks if each.open and self.few_seeds]

    @property
    def key(self) -> str:
        held = sum(check.holds for check in self.checks)
        return f"{held} of {len(self.checks)} statements hold"

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "bar": self.text,
            "verdict": self.verdict,
            "numbers": {
                check.statement: {"holds": check.holds, **check.numbers} for check in self.checks
            },
            "missed": [check.statement for check in self.missed],
            "undecided": [check.statement for check in self.undecided],
        }
