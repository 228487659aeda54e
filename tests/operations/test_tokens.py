"""`cans token` writes the file that a server reads."""

from __future__ import annotations

import json
import stat

import pytest
from typer.testing import CliRunner

from cans import cli
from cans.errors import InputError, Refused
from cans.live.server.door.identity import TokenFile


def run(*words: str):
    return CliRunner().invoke(cli.app, ["token", *words])


def test_added_listed_revoked(tmp_path) -> None:
    file = tmp_path / "tokens.txt"
    added = [run("add", name, "--file", str(file)).stdout.strip() for name in ("one", "two")]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(token in file.read_text() for token in added)
    known = TokenFile(file)
    assert [known.entry(token).device for token in added] == ["one", "two"]
    listed = run("list", "--file", str(file), "--json").stdout
    assert json.loads(listed) == {"devices": ["one", "two"]}
    assert run("revoke", "one", "--file", str(file)).exit_code == 0
    with pytest.raises(Refused, match="revoked"):
        known.entry(added[0])
    assert known.entry(added[1]).device == "two"


def test_lines_of_others_stay(tmp_path) -> None:
    file = tmp_path / "tokens.txt"
    file.write_text("# our fleet\nold secret  # by hand\n")
    run("add", "new", "--file", str(file))
    assert file.read_text().splitlines()[:2] == ["# our fleet", "old secret  # by hand"]
    assert TokenFile(file).entry("secret").device == "old"


@pytest.mark.parametrize("name", ["", "two words", "hash#mark", "line\nbreak"])
def test_names_that_would_break_the_file(tmp_path, name) -> None:
    done = run("add", name, "--file", str(tmp_path / "tokens.txt"))
    assert isinstance(done.exception, InputError)
    assert not (tmp_path / "tokens.txt").exists()


def test_twice_and_nobody(tmp_path) -> None:
    file = str(tmp_path / "tokens.txt")
    assert "no token file" in str(run("list", "--file", file).exception)
    run("add", "one", "--file", file)
    assert "already" in str(run("add", "one", "--file", file).exception)
    assert "no token" in str(run("revoke", "two", "--file", file).exception)
