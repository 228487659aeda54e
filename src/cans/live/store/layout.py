"""The version of a store's tables, and how an older one is brought forward.

A store of this release's layout is used as it is, an older one is migrated when a server opens it,
step by step and all or nothing; a newer one, and one from before there were versions, is refused
with what to do. To change the tables: change the schemas, raise `LAYOUT`, and add the step.
"""

from __future__ import annotations

from cans.errors import StoreError

LAYOUT = 3


def _shares_table(prefix: str, text: str, integer: str, blob: str, real: str, tail: str) -> str:
    """The statement that makes the table of what each device has said of a pool."""
    key = ", ".join(f"{name} {text}" for name in ("model", "version", "policy", "part", "scope"))
    return (
        f"CREATE TABLE IF NOT EXISTS {prefix}shares ({key}, device {text}, "
        f"epoch {integer} NOT NULL, said {blob} NOT NULL, time {real} NOT NULL, "
        f"until {real} NOT NULL, banned {real} NOT NULL, "
        f"PRIMARY KEY (model, version, policy, part, scope, device)){tail}; "
    )


def _rest_of_all(prefix: str) -> str:
    """What pools knew before is nobody's word in particular: it is their rest."""
    return (
        f"INSERT INTO {prefix}shares SELECT model, version, policy, part, scope, '', epoch, "
        f"statistics, time, 0, 0 FROM {prefix}pools WHERE epoch >= 0;"
    )


SQLITE_SHARES = _shares_table("", "TEXT", "INTEGER", "BLOB", "REAL", " WITHOUT ROWID")
POSTGRES_SHARES = _shares_table("cans_", "text", "bigint", "bytea", "float8", "")

SQLITE_STEPS = {
    # 2: when a sender was last heard, so that what nobody uses can be purged.
    2: "ALTER TABLE senders ADD COLUMN time REAL NOT NULL DEFAULT 0; "
    "UPDATE senders SET time = CAST(strftime('%s', 'now') AS REAL);",
    # 3: what each device has said of a pool, so that it can be taken back.
    3: SQLITE_SHARES + _rest_of_all(""),
}
POSTGRES_STEPS = {
    2: "ALTER TABLE cans_senders ADD COLUMN time float8 NOT NULL DEFAULT 0; "
    "UPDATE cans_senders SET time = EXTRACT(EPOCH FROM now());",
    3: POSTGRES_SHARES + _rest_of_all("cans_"),
}
TABLES = {  # name -> columns, in both dialects
    "pools": (
        "model", "version", "policy", "part", "scope", "epoch", "round", "statistics", "retired",
        "refused", "time", "slower", "faster", "doubted",
    ),
    "senders": (
        "model", "version", "policy", "part", "scope", "device", "incarnation", "next", "beyond",
        "time",
    ),
    "refusals": (
        "model", "version", "policy", "part", "scope", "device", "incarnation", "uploads",
        "observations", "sequence", "reason", "time",
    ),
    "shares": (
        "model", "version", "policy", "part", "scope", "device", "epoch", "said", "time", "until",
        "banned",
    ),
    "groups": ("model", "shape", "provider", "label", "number", "low", "high"),
    "members": ("model", "shape", "provider", "label", "device", "incarnation", "number"),
}  # fmt: skip


def steps_from(found: int, where: str, steps: dict[int, str]) -> list[str]:
    """The statements that bring a store of layout `found` to the present one.

    >>> steps_from(3, "pools.sqlite", SQLITE_STEPS)
    []
    >>> steps_from(4, "pools.sqlite", SQLITE_STEPS)
    Traceback (most recent call last):
        ...
    cans.errors.StoreError: pools.sqlite was written by a newer CANS (layout 4); upgrade this server
    """
    if found > LAYOUT:
        raise StoreError(
            f"{where} was written by a newer CANS (layout {found}); upgrade this server"
        )
    if found < 1:
        raise StoreError(
            f"{where} was written before stores had a layout version and cannot be read; move it "
            "away and start with a new one: devices keep what they know, and learn on"
        )
    return [steps[version] for version in range(found + 1, LAYOUT + 1)]


def purge_statements(prefix: str, before: str) -> tuple[str, ...]:
    """What forgets all that is older than a parameter, the pools last but one and the senders last.

    A sender is forgotten with its pool, or when it was not heard for as long itself.
    """
    key = "model, version, policy, part, scope"
    old = f"SELECT {key} FROM {prefix}pools WHERE time < {before}"
    kept = f"SELECT {key} FROM {prefix}pools"
    return (
        f"DELETE FROM {prefix}refusals WHERE time < {before} OR ({key}) IN ({old})",
        f"DELETE FROM {prefix}shares WHERE ({key}) IN ({old})",
        f"DELETE FROM {prefix}pools WHERE time < {before}",
        f"DELETE FROM {prefix}senders WHERE time < {before} OR ({key}) NOT IN ({kept})",
    )
