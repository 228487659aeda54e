"""The report's sections in order.

To add one, write a function from `Results` to `Section` and put it on this list; what it says with
numbers is computed from them. Its runs come from a TOML in `studies/grids`.
"""

from __future__ import annotations

from collections.abc import Callable

from cans.simulation.reproduce.page import methods, sweeps
from cans.simulation.reproduce.page.section import Section
from cans.simulation.reproduce.studies.outcomes import Results

SECTIONS: tuple[Callable[[Results], Section], ...] = (
    methods.regret,
    methods.latency,
    methods.error,
    methods.final_regrets,
    sweeps.fleet_size,
    sweeps.gamma,
    methods.ablation,
    sweeps.bounds,
    sweeps.case_study,
)
