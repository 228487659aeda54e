from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cans.live.store import MemoryStore, Store, open_store
from tests.live.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same store again and again."""
    if request.param == "memory":
        kept = MemoryStore()
        return lambda: kept
    if request.param == "sqlite":
        return lambda: open_store(f"sqlite:{tmp_path / 'pools.sqlite'}")
    server: Postgres = request.getfixturevalue("postgres")
    drop_tables(server)
    return lambda: open_store(server.url)


def drop_tables(server: Postgres) -> None:
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS cans_pools, cans_senders, cans_refusals, cans_groups, "
            "cans_members, cans_shares, cans_layout"
        )


@pytest.fixture
def store(opener: Callable[[], Store]) -> Iterator[Store]:
    opened = opener()
    yield opened
    opened.close()
