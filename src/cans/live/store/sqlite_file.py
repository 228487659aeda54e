"""Opening the SQLite file of a store: whose it is, and its tables.

A lock beside the file is held for as long as the server runs: a second server gets a clear error
instead of waits of seconds, while `cans store` may look at the file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from pathlib import Path

from cans.errors import StoreError
from cans.live.store.layout import LAYOUT, SQLITE_SHARES, SQLITE_STEPS, steps_from

_log = logging.getLogger(__name__)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS pools (
    model TEXT, version TEXT, policy TEXT, part TEXT, scope TEXT,
    epoch INTEGER NOT NULL, round INTEGER NOT NULL,
    statistics BLOB NOT NULL, retired BLOB, refused INTEGER NOT NULL,
    time REAL NOT NULL, slower REAL NOT NULL, faster REAL NOT NULL, doubted BLOB,
    PRIMARY KEY (model, version, policy, part, scope)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS senders (
    model TEXT, version TEXT, policy TEXT, part TEXT, scope TEXT, device TEXT, incarnation TEXT,
    next INTEGER NOT NULL, beyond TEXT NOT NULL, time REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (model, version, policy, part, scope, device, incarnation)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refusals (
    model TEXT, version TEXT, policy TEXT, part TEXT, scope TEXT, device TEXT, incarnation TEXT,
    uploads INTEGER NOT NULL, observations INTEGER NOT NULL,
    sequence INTEGER NOT NULL, reason TEXT NOT NULL, time REAL NOT NULL,
    PRIMARY KEY (model, version, policy, part, scope, device, incarnation)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (
    model TEXT, shape TEXT, provider TEXT, label TEXT, number INTEGER,
    low REAL NOT NULL, high REAL NOT NULL,
    PRIMARY KEY (model, shape, provider, label, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (
    model TEXT, shape TEXT, provider TEXT, label TEXT, device TEXT, incarnation TEXT,
    number INTEGER NOT NULL,
    PRIMARY KEY (model, shape, provider, label, device, incarnation)
) WITHOUT ROWID;
"""


def owned(path: Path) -> int:
    """A descriptor that holds the store's lock."""
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise taken(path) from None
    return lock


def taken(path: Path) -> StoreError:
    return StoreError(f"another server owns {path}; several servers share a postgresql:// store")


def prepare(connection: sqlite3.Connection, path: Path, own: bool) -> None:
    """Make the tables, or bring them forward."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    names = connection.execute("SELECT name FROM sqlite_master WHERE name = 'pools'").fetchall()
    steps = steps_from(version, str(path), SQLITE_STEPS) if names or version else []
    if not own:
        if steps:
            raise StoreError(f"{path} is of an older layout; start a server on it once")
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    statements = " ".join([*steps, _SCHEMA, SQLITE_SHARES, f"PRAGMA user_version = {LAYOUT};"])
    connection.executescript(f"BEGIN IMMEDIATE; {statements} COMMIT;")
    if steps:
        _log.info("store brought forward", extra={"file": str(path), "layout": LAYOUT})
