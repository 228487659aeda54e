"""Rows of a transaction that several uploads change: read once and written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cans.learning import PoolKey
from cans.learning.edge import Received, Sender

if TYPE_CHECKING:
    from cans.live.store.base import PoolRows, Refusals, StoredPool


class Buffered:
    """The rows of one transaction; nothing is written before `write`."""

    def __init__(self, rows: PoolRows) -> None:
        self._rows = rows
        self._pools: dict[PoolKey, StoredPool | None] = {}
        self._received: dict[Sender, Received] = {}
        self._refusals: dict[Sender, Refusals | None] = {}
        self._changed: set[PoolKey | Sender] = set()

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

    def write(self) -> None:
        for key, stored in self._pools.items():
            if stored is not None and key in self._changed:
                self._rows.put_pool(key, stored)
        for sender, received in self._received.items():
            if sender in self._changed:
                self._rows.put_received(sender, received)
