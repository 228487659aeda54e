"""Every command says what it is for, in a group, with an example that it understands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from cans import cli


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


ROOT: Any = typer.main.get_command(cli.app)
ALL = list(commands(ROOT))


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(each[0]) for each in ALL])
def test_every_command_has_an_example_that_parses(words, command) -> None:
    lines = (command.epilog or "").split("Example:")[-1].splitlines()
    examples = [line.strip() for line in lines if line.strip().startswith("cans ")]
    assert examples, f"`cans {' '.join(words)}` has no example in its epilog"
    for example in examples:
        given = shlex.split(example)[1:]
        assert tuple(given[: len(words)]) == words
        command.make_context("cans", given[len(words) :])  # raises for an option that is not there
    assert command.help


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(each[0]) for each in ALL])
def test_every_option_says_what_it_is(words, command) -> None:
    hidden = [each for each in command.params if getattr(each, "hidden", False)]
    silent = [each.name for each in command.params if not each.help and each not in hidden]
    assert silent == []


def test_no_line_of_the_help_is_cut_off() -> None:
    """At eighty columns; `...` would stand for the rest of a sentence."""
    groups = [(), *{words[:1] for words, _ in ALL if len(words) > 1}]
    for words in groups:
        shown = subprocess.run(
            [sys.executable, "-m", "cans", *words, "--help"], capture_output=True, text=True,
            check=True, env={**os.environ, "COLUMNS": "80"},
        ).stdout  # fmt: skip
        listed = shown.replace("COMMAND [ARGS]...", "")
        assert [line for line in listed.splitlines() if line.endswith("...")] == []


def test_every_command_is_in_a_group_of_the_help() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "cans", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for panel in ("Run a fleet:", "Look after a fleet:", "Cut a model:", "Study:"):
        assert panel in shown
    assert "Further commands" not in shown
    for words, _ in ALL:
        assert f"\n  {words[0]} " in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell) -> None:
    # The shell is the one that is named, not the one that happens to run the tests.
    named = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.run(
        [sys.executable, "-m", "cans", "--show-completion", shell],
        capture_output=True, text=True, env=named, check=True,
    ).stdout  # fmt: skip
    assert "_CANS_COMPLETE" in script
    environment = {**os.environ, "_CANS_COMPLETE": "complete_bash", "COMP_WORDS": "cans do",
                   "COMP_CWORD": "1"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "cans"], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == ["doctor"]
