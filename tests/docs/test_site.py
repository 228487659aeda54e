"""The site builds strictly; whatever a page tells to type exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest
import typer

from cans import cli
from tests.docs.blocks import PAGES, ROOT, Block, blocks, commands

ALL = [block for page in PAGES for block in blocks(page)]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_the_site_builds_strictly(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("commands", "python", "protocol", "metrics"):
        text = (tmp_path / "reference" / f"{page}.html").read_text()
        assert "cans" in text
    home = (tmp_path / "index.html").read_text()
    outside = re.findall(r'(?:src|href)="(https?://[^"]+)"', home)
    loaded = [each for each in outside if not each.startswith("https://squidfunk")]
    assert loaded == [], "the site loads something from elsewhere"


@pytest.mark.parametrize("block", ALL, ids=[block.where for block in ALL])
def test_what_is_typed_exists(block: Block) -> None:
    if block.language == "python":
        if ">>>" not in block.text:  # those are doctests, run with the README's
            compile(block.text, block.where, "exec")
        return
    if block.language not in ("", "sh", "console"):
        return
    for command in commands(block.text):
        _check(command, block.where)


def _check(command: str, where: str) -> None:
    command = re.sub(r"^(?:[A-Z_]+=\S+\s+)+", "", re.sub(r"\$\([^)]*\)", "x", command))
    for each in re.split(r"\s&&\s|\s>\s\S+", command):
        if each.split(" ", 1)[0] not in ("cans", "make", "python", "pip"):
            continue
        words = shlex.split(re.sub(r"[\[\]]", "", each).replace("...", ""))
        match words[:3]:
            case ["cans", *_]:
                _parse(words[1:], where)
            case ["make", target, *_]:
                makefile = (ROOT / "Makefile").read_text()
                assert re.search(rf"^{target}:", makefile, re.M), f"{where}: make {target}"
            case ["python", "-m", module]:
                assert find_spec(module) is not None, f"{where}: {module}"
            case ["pip", "install", *what]:
                for extra in re.findall(r"cans(?:-edge)?\[([^\]]+)\]", " ".join(what)):
                    assert set(extra.split(",")) <= set(EXTRAS), f"{where}: {extra}"


def _parse(words: list[str], where: str) -> None:
    command = typer.main.get_command(cli.app)
    if words[:1] == ["--help"] or any(each.isupper() and "-" not in each for each in words[:1]):
        return
    while hasattr(command, "commands"):
        if not words or words[0].startswith("-"):
            return  # an option of the group itself
        assert words[0] in command.commands, f"{where}: cans {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    if "|" in words or "--help" in words:
        return
    command.make_context("cans", words)  # raises for an option that does not exist
