"""The tables of a PostgreSQL store: made, or brought forward, when a server opens it."""

from __future__ import annotations

from typing import Any

import psycopg

from cans.live.store.layout import LAYOUT, POSTGRES_SHARES, POSTGRES_STEPS, steps_from

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cans_pools (
    model text, version text, policy text, part text, scope text,
    epoch bigint NOT NULL, round bigint NOT NULL,
    statistics bytea NOT NULL, retired bytea, refused bigint NOT NULL,
    time float8 NOT NULL, slower float8 NOT NULL, faster float8 NOT NULL, doubted bytea,
    PRIMARY KEY (model, version, policy, part, scope)
);
CREATE TABLE IF NOT EXISTS cans_senders (
    model text, version text, policy text, part text, scope text, device text, incarnation text,
    next bigint NOT NULL, beyond text NOT NULL, time float8 NOT NULL DEFAULT 0,
    PRIMARY KEY (model, version, policy, part, scope, device, incarnation)
);
CREATE TABLE IF NOT EXISTS cans_refusals (
    model text, version text, policy text, part text, scope text, device text, incarnation text,
    uploads bigint NOT NULL, observations bigint NOT NULL,
    sequence bigint NOT NULL, reason text NOT NULL, time float8 NOT NULL,
    PRIMARY KEY (model, version, policy, part, scope, device, incarnation)
);
CREATE TABLE IF NOT EXISTS cans_groups (
    model text, shape text, provider text, label text, number bigint,
    low float8 NOT NULL, high float8 NOT NULL,
    PRIMARY KEY (model, shape, provider, label, number)
);
CREATE TABLE IF NOT EXISTS cans_members (
    model text, shape text, provider text, label text, device text, incarnation text,
    number bigint NOT NULL,
    PRIMARY KEY (model, shape, provider, label, device, incarnation)
);
CREATE TABLE IF NOT EXISTS cans_layout (version int NOT NULL);
"""


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Make the tables, or bring them forward. The first release had no table of the version."""
    tables = "SELECT to_regclass('cans_pools'), to_regclass('cans_layout')"
    pools, layout = connection.execute(tables).fetchone() or (None, None)
    if pools is not None:
        version = _layout_of(connection, layout is not None)
        for step in steps_from(version, "this database", POSTGRES_STEPS):
            connection.execute(step.encode())
    connection.execute((_SCHEMA + POSTGRES_SHARES).encode())
    connection.execute("DELETE FROM cans_layout")
    connection.execute("INSERT INTO cans_layout VALUES (%s)", (LAYOUT,))


def _layout_of(connection: psycopg.Connection[Any], said: bool) -> int:
    if said:
        row = connection.execute("SELECT version FROM cans_layout").fetchone()
        return int(row[0]) if row is not None else 0
    columns = connection.execute(
        "SELECT 1 FROM information_schema.columns WHERE table_name = 'cans_pools' "
        "AND column_name = 'doubted'"
    ).fetchone()
    return 1 if columns is not None else 0
