"""Pools in memory: for tests, demos and servers that may forget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
    Purged,
    Refusals,
    Store,
    StoredPool,
    Transaction,
)
from cans.live.store.shares import Share


def open_url(url: str, own: bool) -> Store:
    """`memory:`."""
    return MemoryStore()


class MemoryStore(Store):
    def __init__(self) -> None:
        self._lock = Lock()
        self._pools: dict[PoolKey, StoredPool] = {}
        self._received: dict[Sender, Received] = {}
        self._refusals: dict[Sender, Refusals] = {}
        self._shares: dict[PoolKey, dict[str, Share]] = {}
        self._spans: dict[Family, tuple[Span, ...]] = {}
        self._members: dict[tuple[Family, Member], int] = {}

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with self._lock:
            changes = _Changes(
                self._pools,
                self._received,
                self._refusals,
                self._shares,
                self._spans,
                self._members,
            )
            yield changes
            if len(self._pools | changes.pools) > MOST_POOLS:
                raise Refused(f"more than {MOST_POOLS} pools", "RESOURCE_EXHAUSTED")
            self._pools.update(changes.pools)
            self._received.update(changes.senders)
            self._refusals.update(changes.refused)
            self._shares.update(changes.shares)
            self._spans.update(changes.new_spans)
            self._members.update(changes.members)

    def downloads(self, keys: Iterable[PoolKey]) -> list[Download]:
        with self._lock:
            found = [(key, self._pools.get(key)) for key in keys]
        return [download_of(key, stored.pool) for key, stored in found if stored]

    def versions(self, keys: Iterable[PoolKey]) -> dict[PoolKey, tuple[int, int]]:
        return {each.key: (each.epoch, each.round) for each in self.downloads(keys)}

    def accounts(self) -> list[Account]:
        with self._lock:
            return [Account(key, each.pool, each.refused) for key, each in self._pools.items()]

    def refused(self) -> dict[Sender, Refusals]:
        with self._lock:
            return dict(self._refusals)

    def snapshot(self, tables: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        raise StoreError("a store in memory can be looked at by its own server only")

    def purge(self, before: float) -> Purged:
        with self._lock:
            old = {key for key, stored in self._pools.items() if stored.pool.time < before}
            senders = [sender for sender in self._received if sender[0] in old]
            for sender in senders:
                del self._received[sender]
                self._refusals.pop(sender, None)
            for key in old:
                del self._pools[key]
                self._shares.pop(key, None)
        return Purged(len(old), len(senders))

    def close(self) -> None:
        pass


class _Changes:
    """What one transaction would change, aside until it is committed."""

    def __init__(
        self,
        pools: dict[PoolKey, StoredPool],
        senders: dict[Sender, Received],
        refused: dict[Sender, Refusals],
        shares: dict[PoolKey, dict[str, Share]],
        spans: dict[Family, tuple[Span, ...]],
        members: dict[tuple[Family, Member], int],
    ) -> None:
        self._old_pools, self._old_senders, self._old_refused = pools, senders, refused
        self._old_shares, self._old_spans, self._old_members = shares, spans, members
        self.shares: dict[PoolKey, dict[str, Share]] = {}
        self.new_spans: dict[Family, tuple[Span, ...]] = {}
        self.members: dict[tuple[Family, Member], int] = {}
        self.pools: dict[PoolKey, StoredPool] = {}
        self.senders: dict[Sender, Received] = {}
        self.refused: dict[Sender, Refusals] = {}

    def pool(self, key: PoolKey) -> StoredPool | None:
        return self.pools.get(key) or self._old_pools.get(key)

    def put_pool(self, key: PoolKey, stored: StoredPool) -> None:
        self.pools[key] = stored

    def received(self, sender: Sender) -> Received:
        return self.senders.get(sender) or self._old_senders.get(sender) or Received()

    def put_received(self, sender: Sender, received: Received) -> None:
        self.senders[sender] = received

    def refusals(self, sender: Sender) -> Refusals | None:
        return self.refused.get(sender) or self._old_refused.get(sender)

    def put_refusals(self, sender: Sender, refusals: Refusals) -> None:
        self.refused[sender] = refusals

    def share(self, key: PoolKey, device: str) -> Share | None:
        return self._of(key).get(device)

    def put_share(self, key: PoolKey, device: str, share: Share | None) -> None:
        if key not in self.shares:
            self.shares[key] = dict(self._of(key))
        if share is None:
            self.shares[key].pop(device, None)
        else:
            self.shares[key][device] = share

    def share_times(self, key: PoolKey) -> dict[str, tuple[int, float]]:
        return {device: (each.epoch, each.time) for device, each in self._of(key).items()}

    def _of(self, key: PoolKey) -> dict[str, Share]:
        return self.shares.get(key, self._old_shares.get(key, {}))

    def spans(self, family: Family) -> tuple[Span, ...]:
        return self.new_spans.get(family) or self._old_spans.get(family, ())

    def put_span(self, family: Family, number: int, span: Span) -> None:
        spans = self.spans(family)
        self.new_spans[family] = (*spans[:number], span, *spans[number + 1 :])

    def member(self, family: Family, member: Member) -> int | None:
        number = self.members.get((family, member))
        return self._old_members.get((family, member)) if number is None else number

    def put_member(self, family: Family, member: Member, number: int) -> None:
        if len(self._old_members) >= MOST_MEMBERS:
            raise Refused(f"more than {MOST_MEMBERS} devices", "RESOURCE_EXHAUSTED")
        self.members[family, member] = number
