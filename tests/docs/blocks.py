"""Code blocks of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """A fenced block, and where it stands."""

    page: Path
    line: int
    language: str
    title: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        info = found["info"].strip()
        title = re.search(r'title="([^"]*)"', info)
        language = info.split()[0] if info else ""
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, language, title[1] if title else "", found["text"])


def commands(text: str) -> Iterator[str]:
    """Commands of a block, each in one line, without comments."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        command = re.sub(r"\s+#\s.*$", "", line).strip()
        if command and not command.startswith("#"):
            yield command
