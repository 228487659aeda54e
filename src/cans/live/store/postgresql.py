"""Pools in PostgreSQL, shared by several servers.

One connection, used under a lock and opened again when it is lost. A transaction that cannot reach
the database fails as a whole: nothing was acknowledged, and the device sends again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from threading import Lock
from typing import Any

import psycopg

from cans.errors import Refused, StoreError
from cans.learning import Download, PoolKey
from cans.learning.edge import PoolContents, Received, Sender, download_of
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
from cans.live.store.postgres_tables import prepare
from cans.live.store.shares import Share

_FAMILY = "model = %s AND shape = %s AND provider = %s AND label = %s"
_KEY = "model = %s AND version = %s AND policy = %s AND part = %s AND scope = %s"
_SENDER = f"{_KEY} AND device = %s AND incarnation = %s"
# Two servers that start together must not create the tables at once: an arbitrary lock number.
_STARTING = 0x63616E73


def open_url(url: str, own: bool) -> Store:
    """`postgresql://...`, as psycopg takes it."""
    return PostgresStore(url)


class PostgresStore(Store):
    shared = True

    def __init__(self, url: str, connect_seconds: int = 5) -> None:
        self.url = url
        self._seconds = connect_seconds
        self._lock = Lock()
        self._connection: psycopg.Connection[Any] | None = None
        try:
            with self._session() as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_STARTING,))
                prepare(connection)
        except StoreError:
            self._drop()
            raise

    @contextmanager
    def _session(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection, under the lock; a failure of the database is ours to name."""
        with self._lock:
            try:
                yield self._live()
            except psycopg.OperationalError as error:
                self._drop()
                reason = " ".join(str(error).split()) or "connection lost"
                raise StoreError(f"PostgreSQL is not reachable: {reason}") from None
            except psycopg.Error as error:
                self._drop()
                raise StoreError(f"PostgreSQL refused: {error}") from None

    def _live(self) -> psycopg.Connection[Any]:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._connection = psycopg.connect(
            self.url, autocommit=True, connect_timeout=self._seconds, keepalives_idle=5,
            keepalives_interval=2, keepalives_count=3, tcp_user_timeout=10_000,
            application_name="cans",
        )  # fmt: skip
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with self._session() as connection:
            self._revive(connection)
            with self._live().transaction():
                yield _Rows(self._live())

    def _revive(self, connection: psycopg.Connection[Any]) -> None:
        # A server restarted since the last use is noticed before the work, not in its middle.
        try:
            connection.execute("SELECT 1")
        except psycopg.OperationalError:
            self._drop()
            self._live()

    def _select(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        with self._session() as connection:
            self._revive(connection)
            return self._live().execute(query.encode(), values).fetchall()

    def downloads(self, keys: Iterable[PoolKey]) -> list[Download]:
        query = f"SELECT {COLUMNS} FROM cans_pools WHERE {_KEY}"
        rows = [(key, row) for key in keys for row in self._select(query, key)]
        return [download_of(key, row_pool(row).pool) for key, row in rows]

    def versions(self, keys: Iterable[PoolKey]) -> dict[PoolKey, tuple[int, int]]:
        wanted = tuple(keys)
        if not wanted:
            return {}
        # Columns as arrays: a statement has at most 65,535 parameters.
        query = (
            "SELECT model, version, policy, part, scope, epoch, round FROM cans_pools "
            "WHERE (model, version, policy, part, scope) IN (SELECT * FROM "
            "unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[]))"
        )
        columns = tuple(list(each) for each in zip(*wanted, strict=True))
        rows = self._select(query, columns)
        return {PoolKey(*row[:5]): (row[5], row[6]) for row in rows}

    def accounts(self) -> list[Account]:
        rows = self._select(
            f"SELECT model, version, policy, part, scope, {COLUMNS} FROM cans_pools"
        )
        accounts = []
        for row in rows:
            stored = row_pool(row[5:])
            accounts.append(Account(PoolKey(*row[:5]), stored.pool, stored.refused))
        return accounts

    def refused(self) -> dict[Sender, Refusals]:
        rows = self._select(
            "SELECT model, version, policy, part, scope, device, incarnation, "
            f"{REFUSALS} FROM cans_refusals"
        )
        return {(PoolKey(*row[:5]), row[5], row[6]): Refusals(*row[7:]) for row in rows}

    def snapshot(self, tables: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        found = {}
        with self._session() as connection:
            self._revive(connection)
            with self._live().transaction():
                self._live().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                for table in tables:
                    query = f"SELECT {', '.join(TABLES[table])} FROM cans_{table}"
                    found[table] = self._live().execute(query.encode()).fetchall()
        if "pools" in found:  # without those that a transaction has begun and not yet filled
            found["pools"] = [row for row in found["pools"] if row[5] >= 0]
        return found

    def purge(self, before: float) -> Purged:
        with self._session() as connection:
            self._revive(connection)
            with self._live().transaction():
                gone = [
                    self._live().execute(each.encode(), {"before": before}).rowcount
                    for each in purge_statements("cans_", "%(before)s")
                ]
        return Purged(*gone[-2:])

    def close(self) -> None:
        with self._lock:
            self._drop()


class _Rows:
    """The verbs of a transaction; `FOR UPDATE` keeps other servers from a pool that was read."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def pool(self, key: PoolKey) -> StoredPool | None:
        query = f"SELECT {COLUMNS} FROM cans_pools WHERE {_KEY} FOR UPDATE".encode()
        row = self._connection.execute(query, key).fetchone()
        if row is not None:
            return row_pool(row)
        count = self._connection.execute("SELECT count(*) FROM cans_pools").fetchone()
        if count is not None and count[0] >= MOST_POOLS:
            raise Refused(f"more than {MOST_POOLS} pools", "RESOURCE_EXHAUSTED")
        # Nothing to lock yet: put an empty row there first, or two servers would both begin at zero
        # and the second would overwrite the first. Dimension 1 stands for "not known yet".
        empty = StoredPool(PoolContents.empty(1), 0)
        self._connection.execute(
            "INSERT INTO cans_pools VALUES (%s,%s,%s,%s,%s,-1,%s,%s,%s,%s,%s,%s,%s,%s) "
            "ON CONFLICT DO NOTHING",
            (*key, *pool_row(empty)[1:]),
        )
        row = self._connection.execute(query, key).fetchone()
        if row is None or row[0] == -1:
            return None
        return row_pool(row)

    def put_pool(self, key: PoolKey, stored: StoredPool) -> None:
        query = f"UPDATE cans_pools SET ({COLUMNS}) = (%s,%s,%s,%s,%s,%s,%s,%s,%s) WHERE {_KEY}"
        self._connection.execute(query.encode(), (*pool_row(stored), *key))

    def received(self, sender: Sender) -> Received:
        key, device, incarnation = sender
        query = f"SELECT next, beyond FROM cans_senders WHERE {_SENDER}"
        values = (*key, device, incarnation)
        return row_received(self._connection.execute(query.encode(), values).fetchone())

    def put_received(self, sender: Sender, received: Received) -> None:
        key, device, incarnation = sender
        self._connection.execute(
            "INSERT INTO cans_senders VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s) "
            "ON CONFLICT (model, version, policy, part, scope, device, incarnation) "
            "DO UPDATE SET (next, beyond, time) = (excluded.next, excluded.beyond, excluded.time)",
            (*key, device, incarnation, *received_row(received), time.time()),
        )

    def refusals(self, sender: Sender) -> Refusals | None:
        key, device, incarnation = sender
        query = f"SELECT {REFUSALS} FROM cans_refusals WHERE {_SENDER}"
        row = self._connection.execute(query.encode(), (*key, device, incarnation)).fetchone()
        return None if row is None else Refusals(*row)

    def put_refusals(self, sender: Sender, refusals: Refusals) -> None:
        key, device, incarnation = sender
        query = (
            f"INSERT INTO cans_refusals VALUES (%s{11 * ',%s'}) "
            "ON CONFLICT (model, version, policy, part, scope, device, incarnation) "
            f"DO UPDATE SET ({REFUSALS}) = (excluded.uploads, excluded.observations, "
            "excluded.sequence, excluded.reason, excluded.time)"
        )
        values = (*key, device, incarnation, *astuple(refusals))
        self._connection.execute(query.encode(), values)

    def share(self, key: PoolKey, device: str) -> Share | None:
        query = f"SELECT {SHARES} FROM cans_shares WHERE {_KEY} AND device = %s"
        return row_share(self._connection.execute(query.encode(), (*key, device)).fetchone())

    def put_share(self, key: PoolKey, device: str, share: Share | None) -> None:
        if share is None:
            query = f"DELETE FROM cans_shares WHERE {_KEY} AND device = %s"
            self._connection.execute(query.encode(), (*key, device))
            return
        query = (
            f"INSERT INTO cans_shares VALUES (%s{10 * ',%s'}) "
            "ON CONFLICT (model, version, policy, part, scope, device) "
            f"DO UPDATE SET ({SHARES}) = (excluded.epoch, excluded.said, excluded.time, "
            "excluded.until, excluded.banned)"
        )
        self._connection.execute(query.encode(), (*key, device, *share_row(share)))

    def share_times(self, key: PoolKey) -> dict[str, tuple[int, float]]:
        query = f"SELECT device, epoch, time FROM cans_shares WHERE {_KEY}"
        rows = self._connection.execute(query.encode(), key).fetchall()
        return {device: (epoch, time) for device, epoch, time in rows}

    def spans(self, family: Family) -> tuple[Span, ...]:
        # Groups that do not exist yet cannot be locked row by row: two servers would both make the
        # first one. The lock is the family's, and ends with the transaction.
        self._connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", ("\x1f".join(family),)
        )
        query = f"SELECT low, high FROM cans_groups WHERE {_FAMILY} ORDER BY number"
        return tuple(Span(*row) for row in self._connection.execute(query.encode(), family))

    def put_span(self, family: Family, number: int, span: Span) -> None:
        self._connection.execute(
            "INSERT INTO cans_groups VALUES (%s,%s,%s,%s,%s,%s,%s) "
            "ON CONFLICT (model, shape, provider, label, number) "
            "DO UPDATE SET (low, high) = (excluded.low, excluded.high)",
            (*family, number, *span),
        )

    def member(self, family: Family, member: Member) -> int | None:
        query = (
            f"SELECT number FROM cans_members WHERE {_FAMILY} AND device = %s AND incarnation = %s"
        )
        row = self._connection.execute(query.encode(), (*family, *member)).fetchone()
        return None if row is None else int(row[0])

    def put_member(self, family: Family, member: Member, number: int) -> None:
        count = self._connection.execute("SELECT count(*) FROM cans_members").fetchone()
        if count is not None and count[0] >= MOST_MEMBERS:
            raise Refused(f"more than {MOST_MEMBERS} devices", "RESOURCE_EXHAUSTED")
        self._connection.execute(
            "INSERT INTO cans_members VALUES (%s,%s,%s,%s,%s,%s,%s) "
            "ON CONFLICT (model, shape, provider, label, device, incarnation) "
            "DO UPDATE SET number = excluded.number",
            (*family, *member, number),
        )
