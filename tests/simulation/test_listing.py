"""`cans policies`, `cans worlds`, `cans models`: everything that exists, one line each."""

from __future__ import annotations

import json
import sys

import pytest

from cans.cli import main
from cans.errors import InputError
from cans.learning.policies import POLICIES, policy_named
from cans.live.wire.terms import Terms
from cans.models.builtin import NAMES
from cans.simulation.worlds.named import WORLDS


@pytest.fixture
def listed(monkeypatch, capsys):
    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["cans", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        assert not caught.value.code
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("command", ["policies", "worlds", "models"])
def test_a_line_each_and_the_same_as_json(command, listed) -> None:
    lines, rows = listed(command).splitlines(), json.loads(listed(command, "--json"))
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        name, about = line.split(maxsplit=1)
        assert (name, about) == (row["name"], row["about"])
        assert len(about) > 10


def test_all_policies_and_which_of_them_a_server_takes(listed) -> None:
    rows = json.loads(listed("policies", "--json"))
    assert {row["name"] for row in rows} > set(POLICIES)
    assert [row["name"] for row in rows if row["default"]] == ["cans"]
    assert len({row["about"] for row in rows}) == len(rows)
    for row in rows:
        policy = policy_named(row["name"])
        if row["simulation_only"]:
            with pytest.raises(InputError):
                Terms(policy)
        else:
            assert Terms(policy).policy is policy


def test_all_worlds_and_models(listed) -> None:
    worlds = json.loads(listed("worlds", "--json"))
    assert [row["name"] for row in worlds] == [*WORLDS, "delayed", "trace", "crowded"]
    models = json.loads(listed("models", "--json"))
    assert [row["name"] for row in models] == list(NAMES)
    assert all(row["macs"] > 1e8 and row["points"] > 10 for row in models)
