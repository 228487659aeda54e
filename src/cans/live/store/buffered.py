"""Rows of a transaction that several uploads change: read once and written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cans.learning import PoolKey
from cans.learning.edge import Received, Sender

if TYPE_CHECKING:
    from cans.live.store.base import PoolRows, Refusals, StoredPool
    from cans.live.store.shares import Share


class Buffered:
    """The rows of one transaction; nothing is written before `write`."""

    def __init__(self, rows: PoolRows) -> None:
        self._rows = rows
        self._pools: dict[PoolKey, StoredPool | None] = {}
        self._received: dict[Sender, Received] = {}
        self._refusals: dict[Sender, Refusals | None] = {}
        self._shares: dict[tuple[PoolKey, str], Share | None] = {}
        self._changed: set[PoolKey | Sender | tuple[PoolKey, str]] = set()

    def pool(self, key: PoolKey) -> StoredPool | None:
        if key not in self._pools:
            self._pools[key] = self._rows.pool(key)
        return self._pools[key]

    def put_pool(self, key: PoolKey, stored: StoredPool) -> None:
        self._pools[key] = stored
        self._changed.add(key)

    def received(self, sender: Sender) -> Received:
        if sender not in self._received:
            self._received[sender] = self._rows.received(sender)
        return self._received[sender]

    def put_received(self, sender: Sender, received: Received) -> None:
        self._received[sender] = received
        self._changed.add(sender)

    def refusals(self, sender: Sender) -> Refusals | None:
        if sender not in self._refusals:
            self._refusals[sender] = self._rows.refusals(sender)
        return self._refusals[sender]

    def put_refusals(self, sender: Sender, refusals: Refusals) -> None:
        self._refusals[sender] = refusals
        self._rows.put_refusals(sender, refusals)

    def share(self, key: PoolKey, device: str) -> Share | None:
        if (key, device) not in self._shares:
            self._shares[key, device] = self._rows.share(key, device)
        return self._shares[key, device]

    def put_share(self, key: PoolKey, device: str, share: Share | None) -> None:
        self._shares[key, device] = share
        self._changed.add((key, device))

    def share_times(self, key: PoolKey) -> dict[str, tuple[int, float]]:
        times = self._rows.share_times(key)
        for (pool, device), share in self._shares.items():
            if pool == key and share is None:
                times.pop(device, None)
            elif pool == key and share is not None:
                times[device] = (share.epoch, share.time)
        return times

    def write(self) -> None:
        for key, stored in self._pools.items():
            if stored is not None and key in self._changed:
                self._rows.put_pool(key, stored)
        for sender, received in self._received.items():
            if sender in self._changed:
                self._rows.put_received(sender, received)
        for (key, device), share in self._shares.items():
            if (key, device) in self._changed:
                self._rows.put_share(key, device, share)
