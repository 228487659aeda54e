"""Which engine plays when nobody says: the one that is done first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cans.cli import app
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


@pytest.mark.parametrize(
    ("wrong", "engine"), [({"policy": "nope"}, "fast"), ({"world": "delayed"}, None)]
)
def test_nobody_waits_for_a_compiler_that_is_not_needed(
    wrong: dict[str, str], engine: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.compiled, "is_compiled", lambda: False)
    words = ["simulate", "--rounds", str(FEW_ROUNDS + 1), "--seeds", "1", "--devices", "2"]
    words += [f"--{name}={value}" for name, value in wrong.items()]
    monkeypatch.setattr(run, "in_parallel", lambda *_: iter(()))
    result = CliRunner().invoke(app, [*words, *(["--engine", engine] if engine else [])])
    assert "compiling" not in result.stderr


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Seeds of the object loop are not played in processes that would run the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import cans\n"
        "runs = cans.simulate('vgg16', 'cans', rounds=20, seeds=2, engine='reference').runs\n"
        "print(len(runs))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("2\n", "")


@pytest.mark.usefixtures("compiled")
def test_compiled_code_is_found_again() -> None:
    assert run.compiled.is_compiled()
