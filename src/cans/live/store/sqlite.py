"""Pools in one SQLite file, owned by one server process.

The file is locked for as long as the server runs: a second server gets a clear error instead of
waits of seconds. Writes go through a write-ahead log with `synchronous=FULL`: a commit has reached
the disk when it returns, so that an acknowledged upload survives a power cut. `NORMAL` would be
eight times as fast and lose the last commits then; uploads are rare enough not to need it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from threading import Lock
from typing import Any

from cans.errors import Refused, StoreError
from cans.learning import Download, PoolKey
from cans.learning.edge import Received, Sender, download_of
from cans.learning.grouping import Family, Span
from cans.live.store.base import (
    MOST_MEMBERS,
    MOST_POOLS,
    Account,
    Member,
    Refusals,
    Store,
    StoredPool,
    Transaction,
)
from cans.live.store.encoding import (
    COLUMNS,
    REFUSALS,
    pool_row,
    received_row,
    row_pool,
    row_received,
)

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
    next INTEGER NOT NULL, beyond TEXT NOT NULL,
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
PRAGMA user_version = 1;
"""
_FAMILY = "model = ? AND shape = ? AND provider = ? AND label = ?"
_KEY = "model = ? AND version = ? AND policy = ? AND part = ? AND scope = ?"
_SENDER = f"{_KEY} AND device = ? AND incarnation = ?"


class SqliteStore(Store):
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        connection: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=2.0
            )
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, 1):
                raise StoreError(f"{path} was written by a newer CANS (layout {version})")
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except (sqlite3.Error, OSError, StoreError) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, StoreError):
                raise
            if "locked" in str(error):
                raise StoreError(
                    f"another server owns {path}; several servers share a postgresql:// store"
                ) from None
            raise StoreError(f"cannot open the store {path}: {error}") from None
        self._connection = connection

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield _Rows(self._connection)
                self._connection.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise StoreError(f"cannot write to {self.path}: {error}") from None
                raise

    def _select(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        with self._lock:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"cannot read {self.path}: {error}") from None

    def downloads(self, keys: Iterable[PoolKey]) -> list[Download]:
        query = f"SELECT {COLUMNS} FROM pools WHERE {_KEY}"
        rows = [(key, row) for key in keys for row in self._select(query, key)]
        return [download_of(key, row_pool(row).pool) for key, row in rows]

    def versions(self, keys: Iterable[PoolKey]) -> dict[PoolKey, tuple[int, int]]:
        found = {}
        for key in keys:
            for row in self._select(f"SELECT epoch, round FROM pools WHERE {_KEY}", key):
                found[key] = row
        return found

    def accounts(self) -> list[Account]:
        accounts = []
        for row in self._select(
            f"SELECT model, version, policy, part, scope, {COLUMNS} FROM pools"
        ):
            stored = row_pool(row[5:])
            accounts.append(Account(PoolKey(*row[:5]), stored.pool, stored.refused))
        return accounts

    def refused(self) -> dict[Sender, Refusals]:
        rows = self._select("SELECT * FROM refusals")
        return {(PoolKey(*row[:5]), row[5], row[6]): Refusals(*row[7:]) for row in rows}

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class _Rows:
    """The verbs of a transaction; the whole file is locked while it runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def pool(self, key: PoolKey) -> StoredPool | None:
        row = self._connection.execute(f"SELECT {COLUMNS} FROM pools WHERE {_KEY}", key).fetchone()
        if row is not None:
            return row_pool(row)
        if self._connection.execute("SELECT count(*) FROM pools").fetchone()[0] >= MOST_POOLS:
            raise Refused(f"more than {MOST_POOLS} pools", "RESOURCE_EXHAUSTED")
        return None

    def put_pool(self, key: PoolKey, stored: StoredPool) -> None:
        values = (*key, *pool_row(stored))
        self._connection.execute(f"REPLACE INTO pools VALUES (?{13 * ',?'})", values)

    def received(self, sender: Sender) -> Received:
        key, device, incarnation = sender
        query = f"SELECT next, beyond FROM senders WHERE {_SENDER}"
        return row_received(self._connection.execute(query, (*key, device, incarnation)).fetchone())

    def put_received(self, sender: Sender, received: Received) -> None:
        key, device, incarnation = sender
        values = (*key, device, incarnation, *received_row(received))
        self._connection.execute("REPLACE INTO senders VALUES (?,?,?,?,?,?,?,?,?)", values)

    def refusals(self, sender: Sender) -> Refusals | None:
        key, device, incarnation = sender
        query = f"SELECT {REFUSALS} FROM refusals WHERE {_SENDER}"
        row = self._connection.execute(query, (*key, device, incarnation)).fetchone()
        return None if row is None else Refusals(*row)

    def put_refusals(self, sender: Sender, refusals: Refusals) -> None:
        key, device, incarnation = sender
        values = (*key, device, incarnation, *astuple(refusals))
        self._connection.execute(f"REPLACE INTO refusals VALUES (?{11 * ',?'})", values)

    def spans(self, family: Family) -> tuple[Span, ...]:
        query = f"SELECT low, high FROM groups WHERE {_FAMILY} ORDER BY number"
        return tuple(Span(*row) for row in self._connection.execute(query, family))

    def put_span(self, family: Family, number: int, span: Span) -> None:
        values = (*family, number, *span)
        self._connection.execute("REPLACE INTO groups VALUES (?,?,?,?,?,?,?)", values)

    def member(self, family: Family, member: Member) -> int | None:
        query = f"SELECT number FROM members WHERE {_FAMILY} AND device = ? AND incarnation = ?"
        row = self._connection.execute(query, (*family, *member)).fetchone()
        return None if row is None else int(row[0])

    def put_member(self, family: Family, member: Member, number: int) -> None:
        if self._connection.execute("SELECT count(*) FROM members").fetchone()[0] >= MOST_MEMBERS:
            raise Refused(f"more than {MOST_MEMBERS} devices", "RESOURCE_EXHAUSTED")
        values = (*family, *member, number)
        self._connection.execute("REPLACE INTO members VALUES (?,?,?,?,?,?,?)", values)
