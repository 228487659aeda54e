"""Pools in one SQLite file, owned by one server process.

Writes go through a write-ahead log with `synchronous=FULL`: a commit has reached the disk when it
returns, so that an acknowledged upload survives a power cut. `NORMAL` would be eight times as fast
and lose the last commits then; uploads are rare enough, and merged together, not to need it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from threading import Lock
from typing import Any

from cans.errors import InputError, Refused, StoreError
from cans.learning import Download, PoolKey
from cans.learning.edge import Received, Sender, download_of
from cans.learning.grouping import Family, Span
from cans.live.store.base import (
    MOST_MEMBERS,
    MOST_POOLS,
    Account,
    Member,
    Purged,
    Refusals,
    Store,
    StoredPool,
    Transaction,
)
from cans.live.store.encoding import (
    COLUMNS,
    REFUSALS,
    SHARES,
    pool_row,
    received_row,
    row_pool,
    row_received,
    row_share,
    share_row,
)
from cans.live.store.layout import TABLES, purge_statements
from cans.live.store.shares import Share
from cans.live.store.sqlite_file import owned, prepare, taken

_FAMILY = "model = ? AND shape = ? AND provider = ? AND label = ?"
_KEY = "model = ? AND version = ? AND policy = ? AND part = ? AND scope = ?"
_SENDER = f"{_KEY} AND device = ? AND incarnation = ?"


def open_url(url: str, own: bool) -> Store:
    """`sqlite:FILE`."""
    file = url.removeprefix("sqlite:")
    if not file:
        raise InputError("sqlite: names no file; use sqlite:FILE")
    return SqliteStore(Path(file), own)


class SqliteStore(Store):
    def __init__(self, path: Path, own: bool = True) -> None:
        """`own`: as the server that writes to it; otherwise to look at what is there."""
        self.path = path
        self._lock = Lock()
        self._owned: int | None = None
        connection: sqlite3.Connection | None = None
        try:
            if own:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._owned = owned(path)
            elif not path.exists():
                raise StoreError(f"there is no store {path}")
            connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=2.0
            )
            prepare(connection, path, own)
        except (sqlite3.Error, OSError, StoreError) as error:
            if connection is not None:
                connection.close()
            self._disown()
            if isinstance(error, StoreError):
                raise
            if "locked" in str(error):
                raise taken(path) from None
            raise StoreError(f"cannot open the store {path}: {error}") from None
        self._connection = connection

    def _disown(self) -> None:
        if self._owned is not None:
            os.close(self._owned)
            self._owned = None

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

    def snapshot(self, tables: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        queries = {each: f"SELECT {', '.join(TABLES[each])} FROM {each}" for each in tables}
        with self._transaction():
            return {
                table: self._connection.execute(query).fetchall()
                for table, query in queries.items()
            }

    def put_rows(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        places = ",".join("?" * len(TABLES[table]))
        with self._transaction():
            self._connection.executemany(
                f"REPLACE INTO {table} ({', '.join(TABLES[table])}) VALUES ({places})", rows
            )

    def purge(self, before: float) -> Purged:
        with self._transaction():
            gone = [
                self._connection.execute(each, {"before": before}).rowcount
                for each in purge_statements("", ":before")
            ]
        return Purged(*gone[-2:])

    def close(self) -> None:
        with self._lock:
            self._connection.close()
            self._disown()


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
        values = (*key, device, incarnation, *received_row(received), time.time())
        self._connection.execute("REPLACE INTO senders VALUES (?,?,?,?,?,?,?,?,?,?)", values)

    def refusals(self, sender: Sender) -> Refusals | None:
        key, device, incarnation = sender
        query = f"SELECT {REFUSALS} FROM refusals WHERE {_SENDER}"
        row = self._connection.execute(query, (*key, device, incarnation)).fetchone()
        return None if row is None else Refusals(*row)

    def put_refusals(self, sender: Sender, refusals: Refusals) -> None:
        key, device, incarnation = sender
        values = (*key, device, incarnation, *astuple(refusals))
        self._connection.execute(f"REPLACE INTO refusals VALUES (?{11 * ',?'})", values)

    def share(self, key: PoolKey, device: str) -> Share | None:
        query = f"SELECT {SHARES} FROM shares WHERE {_KEY} AND device = ?"
        return row_share(self._connection.execute(query, (*key, device)).fetchone())

    def put_share(self, key: PoolKey, device: str, share: Share | None) -> None:
        if share is None:
            query = f"DELETE FROM shares WHERE {_KEY} AND device = ?"
            self._connection.execute(query, (*key, device))
            return
        values = (*key, device, *share_row(share))
        self._connection.execute(f"REPLACE INTO shares VALUES (?{10 * ',?'})", values)

    def share_times(self, key: PoolKey) -> dict[str, tuple[int, float]]:
        rows = self._connection.execute(
            f"SELECT device, epoch, time FROM shares WHERE {_KEY}", key
        ).fetchall()
        return {device: (epoch, time) for device, epoch, time in rows}

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
