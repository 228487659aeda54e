"""`cans reproduce`: the paper's simulated figures and claims, run again and written as a report.

studies/   what is run: a TOML per figure in `grids`, read by `experiments.py`, run by `outcomes.py`
claims/    the paper's claims, the statements behind each, and the verdicts on them
figures/   figures as data, and drawn as SVG
page/      what the report says, and the page itself
beyond/    policy `cans` in worlds that the paper does not have
prototype.py  what real processes add to the report, if they were run
command.py    all of it in order
"""

from __future__ import annotations

from cans.simulation.reproduce.command import reproduce

__all__ = ["reproduce"]
