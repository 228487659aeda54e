"""The prototype's part of the report, as values: a higher layer runs real processes and fills it.

The simulator knows neither processes nor links. Whoever has them hands in a `Measure`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cans.simulation.reproduce.claims.verdicts import Judgement
from cans.simulation.reproduce.page.section import Section

WORLD = "prototype"  # of its judgements


@dataclass(frozen=True, eq=False)
class Prototype:
    """What was measured: verdicts on the claims about it, and a section for the page."""

    judgements: Sequence[Judgement]
    section: Section


Measure = Callable[[Path, bool], Prototype]
"""Runs the prototype and leaves its files in a folder; true: a preview with fewer rounds."""
