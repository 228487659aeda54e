"""`cans reproduce`: the paper's simulated figures and claims, run again and written as a report.

experiments/*.toml   what is run, one file per figure
experiments.py       reads them               outcomes.py   runs each setting once, over all seeds
intervals.py         95 % intervals           verdicts.py   verdicts from statements
checks_*.py          the statements           claims.py     the list of claims
plots.py, axes.py, figures.py                 figures as data, and drawn
section.py, sections_*.py, tables.py          what the report says
report.py, report.css                         the page      command.py    all of it in order
prototype.py         what real processes add to it, if they were run
"""

from __future__ import annotations

from cans.simulation.reproduce.command import reproduce

__all__ = ["reproduce"]
