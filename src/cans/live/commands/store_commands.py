"""`cans store`: look at the pools of a server, keep a copy, forget what nobody uses."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cans.errors import InputError

if TYPE_CHECKING:
    from cans.live.store.base import Store

app = typer.Typer(
    help="Look at a server's pools, copy them, forget old ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="\b\nExample:\n  cans store show sqlite:cans.sqlite",
)
Url = Annotated[str, typer.Argument(metavar="URL", help="sqlite:FILE or postgresql://...")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@app.command(epilog="\b\nExample:\n  cans store show sqlite:cans.sqlite")
def show(url: Url, as_json: AsJson = False) -> None:
    """Show what is in every pool. The server may run meanwhile."""
    with closing(_opened(url)) as store:
        pools = overview(store)
    if as_json:
        typer.echo(json.dumps({"store": url, "pools": pools}))
        return
    if not pools:
        typer.echo("no pools yet", err=True)
    for each in pools:
        age = max(time.time() - each["time"], 0.0)
        typer.echo(
            f"{each['policy']} {each['part']} {each['scope']}: {each['observations']} observations "
            f"of {each['senders']} devices, epoch {each['epoch']}, {each['refused']} refused, "
            f"last merged {_ago(age)} ago (model {each['model'][:12]}, table {each['table']})"
        )


@app.command(epilog="\b\nExample:\n  cans store backup sqlite:cans.sqlite monday.sqlite")
def backup(
    url: Url,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new SQLite file.")],
) -> None:
    """Copy a store into a new SQLite file. `cans serve --store` takes it; the server may run."""
    from cans.live.store.layout import TABLES
    from cans.live.store.sqlite import SqliteStore

    if target.exists():
        raise InputError(f"{target} exists already")
    with closing(_opened(url)) as store:
        rows = store.snapshot(tuple(TABLES))
    with closing(SqliteStore(target)) as copy:
        for table, found in rows.items():
            copy.put_rows(table, found)
    target.with_name(f"{target.name}.lock").unlink(missing_ok=True)
    typer.echo(f"{len(rows['pools'])} pools copied to {target}", err=True)


@app.command(epilog="\b\nExample:\n  cans store purge sqlite:cans.sqlite --older-than-days 180")
def purge(
    url: Url,
    older_than_days: Annotated[
        float, typer.Option(help="Not merged into, or not heard of, for this long.")
    ],
    as_json: AsJson = False,
) -> None:
    """Forget pools and devices that nobody uses. Pools into which nothing was merged for that long,
    and devices that were not heard; the server may run."""
    if not older_than_days >= 1.0:
        raise InputError("--older-than-days must be at least 1")
    with closing(_opened(url)) as store:
        gone = store.purge(time.time() - older_than_days * 86_400)
    if as_json:
        typer.echo(json.dumps(gone._asdict()))
    else:
        typer.echo(f"{gone.pools} pools and {gone.senders} senders forgotten", err=True)


def overview(store: Store) -> list[dict[str, Any]]:
    """Every pool in the words of a JSON document."""
    rows = store.snapshot(("senders",))["senders"]
    senders: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        senders.setdefault(tuple(row[:5]), set()).add(row[5])
    found = []
    for account in sorted(store.accounts(), key=lambda each: each.key):
        pool = account.pool
        found.append(
            {**account.key._asdict(), "epoch": pool.epoch, "round": pool.round,
             "observations": pool.statistics.count, "refused": account.refused,
             "retired": pool.retired.count if pool.retired is not None else 0,
             "senders": len(senders.get(tuple(account.key), ())), "time": pool.time}
        )  # fmt: skip
    return found


def _opened(url: str) -> Store:
    from cans.live.store import open_store

    if url in ("memory", "memory:"):
        raise InputError("a store in memory can be looked at by its own server only")
    return open_store(url, own=False)


def _ago(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
