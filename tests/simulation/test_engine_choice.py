"""Which engine plays when nobody says: the one that is done first."""

from __future__ import annotations

import pytest

from cans.simulation import run
from cans.simulation.run import FEW_ROUNDS, pick_engine


@pytest.mark.parametrize(
    ("installed", "cached", "rounds", "engine"),
    [
        (True, True, 1, "fast"),
        (True, False, FEW_ROUNDS, "reference"),
        (True, False, FEW_ROUNDS + 1, "fast"),
        (False, False, FEW_ROUNDS + 1, "reference"),
    ],
)
def test_a_few_rounds_are_not_worth_compiling_for(
    installed: bool, cached: bool, rounds: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.compiled, "numba_installed", lambda: installed)
    monkeypatch.setattr(run.compiled, "is_compiled", lambda: cached)
    assert pick_engine(None, rounds=rounds) == engine


@pytest.mark.usefixtures("compiled")
def test_compiled_code_is_found_again() -> None:
    assert run.compiled.is_compiled()
