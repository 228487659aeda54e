"""Follows a page word by word: its commands are typed on machines that are folders here.

The only liberties: names of hosts stand for this machine and ports for free ones (also for the
default one); `git`, `pip`, `python3 -m venv` and the activation do nothing, because everything is
installed; `scp` copies between the folders of the machines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.blocks import ROOT, Block, commands

SHIMS = {
    "cans": 'exec "{python}" -m cans "$@"',
    "git": "exit 0",
    "pip": "exit 0",
    "python": 'exec "{python}" "$@"',
    "python3": 'if [ "${{2:-}}" = venv ]; then\n'
    '  mkdir -p "$3/bin"; : > "$3/bin/activate"; exit 0\nfi\n'
    'exec "{python}" "$@"',
    "scp": 'for last; do :; done\nwhile [ $# -gt 1 ]; do\n  machine=${{1%%:*}}; path=${{1#*:}}\n'
    '  cp "{root}/$machine/$path" "$last"; shift\ndone',
}  # fmt: skip


class Follower:
    """`with Follower(folder, {...}) as follow: follow(block)`."""

    def __init__(self, folder: Path, instead: dict[str, str], default: str = "127.0.0.1:0") -> None:
        """`instead`: what stands for a word of the page; `default`: for the port of a server."""
        self._root = folder
        self._default = default
        self._instead = instead
        self._servers: list[subprocess.Popen[bytes]] = []
        self.said = ""  # by all commands, on standard output
        self._bin = folder / "shims"
        self._bin.mkdir(parents=True)
        for name, text in SHIMS.items():
            script = self._bin / name
            body = text.format(python=sys.executable, root=folder)
            script.write_text(f"#!/usr/bin/env bash\n{body}\n")
            script.chmod(0o755)

    def machine(self, name: str) -> Path:
        folder = self._root / (name or "machine")
        folder.mkdir(exist_ok=True)
        return folder

    def __call__(self, block: Block) -> str:
        """Type a block on its machine, or save one that has the name of a file; what it says on
        standard output."""
        if block.title.endswith((".py", ".toml")):
            (self.machine("") / block.title).write_text(block.text)
            return ""
        if block.language == "python":
            return self._run(["python3", "-c", self._here(block.text)], block)
        said = ""
        for command in commands(block.text):
            said += self.type(command, block)
        return said

    def type(self, command: str, block: Block) -> str:
        """One command; a server goes on until the end."""
        before, _, last = command.rpartition(" && ")
        if not re.match(r"(?:\S+=\S+ )*cans serve\b", last):
            return self._run(["bash", "-euc", self._here(command)], block)
        if before:
            self._run(["bash", "-euc", self._here(before)], block)
        if "--listen" not in last:
            last += f" --listen {self._default}"
        self._serve(self._here(last), block)
        return ""

    def _here(self, text: str) -> str:
        for name, value in self._instead.items():
            text = text.replace(name, value)
        return text

    def _environment(self, folder: Path) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def _run(self, words: list[str], block: Block) -> str:
        folder = self.machine(block.title)
        done = subprocess.run(
            words, cwd=folder, env=self._environment(folder), capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.where}: {words[-1]}\n{done.stdout}{done.stderr}"
        self.said += done.stdout
        return done.stdout

    def _serve(self, command: str, block: Block) -> None:
        folder = self.machine(block.title)
        log = folder / f"server-{len(self._servers)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-euc", f"exec {command}"], cwd=folder, stdout=file, stderr=file,
                env=self._environment(folder),
            )  # fmt: skip
        self._servers.append(process)
        until = time.monotonic() + 60
        while "serving " not in log.read_text():
            assert process.poll() is None, f"{block.where}: {log.read_text()}"
            assert time.monotonic() < until, f"{block.where}: no server"
            time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._servers:
            process.terminate()
        codes = [process.wait(30) for process in self._servers]
        if error is None:
            assert codes == [0] * len(codes), "a server did not end well"
