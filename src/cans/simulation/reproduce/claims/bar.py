"""`Bar`: a sentence that our own policy must hold; held or missed, by the numbers alone."""

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

    @property
    def verdict(self) -> str:
        if not self.checks:
            return "not run"
        return "held" if all(check.holds for check in self.checks) else "missed"

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
            "missed": [check.statement for check in self.checks if not check.holds],
        }
