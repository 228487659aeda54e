"""Fixtures and strategies of the whole suite."""

from __future__ import annotations

import fcntl
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

# Compiled code and cold caches make single examples slow; how long is the benchmarks' business.
# Failing examples are not shrunk: they are seeds, and a smaller seed says nothing.
settings.register_profile(
    "cans",
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cans")


@pytest.fixture(scope="session")
def compiled() -> dict[str, Callable[..., Any]]:
    """The compiled engine, compiled by one worker only: the others wait and load it."""
    pytest.importorskip("numba", reason="the compiled engine is the extra `sim`")
    from cans.simulation.engines.compiled import compiled_functions
    from cans.simulation.run import Settings, play_seed

    with (Path(tempfile.gettempdir()) / "cans-tests-compile.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        play_seed(Settings(devices=1, rounds=1), "fast", 0)
    return compiled_functions()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The file with most tests of the compiled engine first, the others of them last: while one
    worker compiles, for minutes, the other has everything else to do."""
    need = Counter(item.path for item in items if "compiled" in getattr(item, "fixturenames", ()))
    first = max(need, key=lambda path: need[path], default=None)
    items.sort(key=lambda item: 0 if item.path == first else 2 if item.path in need else 1)


@pytest.fixture(autouse=True)
def _toys_wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy model takes no time on the device: of a choice that was never taken a reply must come
    within 20 ms, or the device is first, and on a busy machine that is chance. Modules about just
    that say `HEDGED = True`."""
    from cans.live.device.hooks import Hooks

    if not getattr(request.module, "HEDGED", False):
        monkeypatch.setattr(Hooks, "hedges", property(lambda _: False))
