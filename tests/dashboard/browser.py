"""A real browser: Debian's Chromium, driven by Playwright, without any download."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def executable() -> str:
    """The browser; without one the tests of the page fail, and say how to get it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail(
            "the tests of the page need a browser: apt-get update && apt-get install -y chromium",
            pytrace=False,
        )
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A tab that remembers what went wrong in it and what it asked for."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 860}, **options}
        )
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, message: Any) -> None:
        # The browser itself says "net::ERR_..." when a server ends before its tab does.
        if message.type in ("error", "warning") and "net::ERR_" not in message.text:
            self.errors.append(message.text)
