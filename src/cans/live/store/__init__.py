"""Where pools live: in memory, in one SQLite file, or in PostgreSQL for several servers.

To add a store, write the six verbs of `Transaction` and add its URL here; the contract suite in
`tests/live/test_store.py` tells whether it is one.
"""

from __future__ import annotations

from pathlib import Path

from cans.errors import InputError
from cans.live.store.base import Account, Judged, Merged, Refusals, Store
from cans.live.store.memory import MemoryStore

__all__ = ["Account", "Judged", "MemoryStore", "Merged", "Refusals", "Store", "open_store"]


def open_store(url: str, own: bool = True) -> Store:
    """The store that a URL names: `memory:`, `sqlite:FILE` (or just a file), `postgresql://...`.
    `own`: as a server; otherwise to look at it while a server may run."""
    scheme, colon, rest = url.partition(":")
    if url in ("memory", "memory:"):
        return MemoryStore()
    if scheme in ("postgresql", "postgres"):
        try:
            from cans.live.store.postgres import PostgresStore
        except ImportError:
            raise InputError(
                "a PostgreSQL store needs psycopg; pip install 'cans-edge[server]'"
            ) from None
        return PostgresStore(url)
    if colon and scheme != "sqlite" and len(scheme) > 1:
        raise InputError(f"unknown store {url!r}; use sqlite:FILE, postgresql://... or memory:")
    from cans.live.store.sqlite import SqliteStore

    return SqliteStore(Path(rest if scheme == "sqlite" else url), own)
