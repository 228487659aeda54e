from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboard.browser import Watched, chromium


@pytest.fixture(scope="module")  # its event loop runs in this thread as long as it is open
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser: Any) -> Iterator[Watched]:
    """A tab in which nothing may go wrong."""
    watched = Watched(browser)
    yield watched
    watched.context.close()
    assert watched.errors == []
