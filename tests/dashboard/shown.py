"""A server with its page, for a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cans.dashboard.serving import PageThread, show_page
from cans.live.split import SplitModel
from tests.dashboard.fleet import MadeUpFleet, model
from tests.live.running import Running, running, terms


class Shown:
    def __init__(self, server: Running, page: PageThread, split: SplitModel) -> None:
        self.server = server
        self.page = page
        self.recorder = server.server.recorder
        self.fleet = MadeUpFleet(self.recorder, split)

    @property
    def address(self) -> str:
        return self.page.address


@contextmanager
def shown(
    *, listen: str = "127.0.0.1:0", token: str | None = None, split: SplitModel | None = None,
    **options: Any,
) -> Iterator[Shown]:  # fmt: skip
    split = split or model()
    options.setdefault("terms", terms("cans"))
    with running(split, **options) as server:
        page = show_page(server.server, listen, token)
        try:
            yield Shown(server, page, split)
        finally:
            page.close()
