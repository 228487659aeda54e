"""Code blocks of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n)?"
    r"```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)


class Block(NamedTuple):
    """A fenced block, and where it stands."""

    page: Path
    line: int
    language: str
    title: str
    text: str
    not_run: str = ""  # why no test runs it

    @property
    def to_run(self) -> bool:
        """Whether a reader would type it or save it, and a test therefore does."""
        doctest = self.language == "python" and ">>>" in self.text
        return self.language in ("sh", "python", "toml") and not (self.not_run or doctest)

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
        name = title[1] if title else ""
        yield Block(page, line, language, name, found["text"], found["reason"] or "")


def commands(text: str) -> Iterator[str]:
    """Commands of a block, each in one line, without comments."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        command = re.sub(r"\s+#\s.*$", "", line).strip()
        if command and not command.startswith("#"):
            yield command
