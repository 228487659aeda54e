"""Where pools live: in memory, in one SQLite file, or in PostgreSQL for several servers.

The scheme of a store's URL is the name of a module here, which has `open_url(url, own)`. To add a
store, write one such module with the verbs of `Transaction`; the contract suite in
`tests/live/test_store.py` tells whether it is one.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from cans.errors import InputError
from cans.live.store.base import Account, Judged, Merged, Refusals, Store
from cans.live.store.memory import MemoryStore

__all__ = ["Account", "Judged", "MemoryStore", "Merged", "Refusals", "Store", "open_store"]

_ALIASES = {"postgres": "postgresql"}


def open_store(url: str, own: bool = True) -> Store:
    """The store that a URL names: `memory:`, `sqlite:FILE` (or just a file), `postgresql://...`.
    `own`: as a server; otherwise to look at it while a server may run."""
    scheme, colon, _ = url.partition(":")
    if url == "memory":
        scheme = url
    elif not colon or len(scheme) == 1:  # a file, on Windows with its drive
        scheme, url = "sqlite", f"sqlite:{Path(url)}"
    name = f"{__name__}.{_ALIASES.get(scheme, scheme)}"
    known = scheme.isidentifier() and find_spec(name) is not None
    try:
        open_url = getattr(import_module(name), "open_url", None) if known else None
    except ImportError as error:
        missing = f"a {scheme} store needs {error.name}; pip install 'cans-edge[server]'"
        raise InputError(missing) from None
    if open_url is None:
        raise InputError(f"unknown store {url!r}; use sqlite:FILE, postgresql://... or memory:")
    return cast(Store, open_url(url, own))
