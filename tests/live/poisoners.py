"""An authenticated device that lies to the pools it belongs to, in twelve ways.

It speaks the wire by itself: nothing that an honest device would hold back is held back. It knows
what every choice really takes, and says something else, to every pool that the server lets it.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from cans.errors import CansError
from cans.learning import DeviceIdentity, PartitionTable, PoolKey, SufficientStatistics, Upload
from cans.learning.arithmetic.arrays import Array
from cans.live.wire.link import Link
from cans.live.wire.messages import JoinRequest, SyncRequest

Truth = dict[str, Array]
"""Milliseconds of every choice, by segment, on the machine that the liar claims to be."""


@dataclass(frozen=True)
class Strategy:
    """How one liar lies."""

    factor: Callable[[int], float]  # of the truth, by the number of the lie
    count: Callable[[int], int] = lambda _: 1  # observations that a lie claims
    every: float = 0.05  # seconds
    parts: tuple[str, ...] = ("front", "link", "server")
    largest_only: bool = False  # speaks of the choices that send most, where nobody else looks
    fresh: bool = False  # a new incarnation for every lie
    again: int = 1  # how often each message is sent
    liars: int = 1


STRATEGIES = {
    "x100": Strategy(lambda _: 100.0),
    "/100": Strategy(lambda _: 0.01),
    "x5": Strategy(lambda _: 5.0),
    "/5": Strategy(lambda _: 0.2),
    "bulk": Strategy(lambda _: 5.0, lambda n: 1_000_000 if n == 0 else 200, every=0.3),
    "drip": Strategy(lambda _: 1.3),
    "alternating": Strategy(lambda n: 5.0 if n % 2 else 1.0),
    "only large tensors": Strategy(lambda _: 5.0, largest_only=True),
    "only its group": Strategy(lambda _: 5.0, parts=("front",)),
    "fresh incarnations": Strategy(lambda _: 5.0, fresh=True),
    "replays": Strategy(lambda _: 5.0, again=10),
    "two liars": Strategy(lambda _: 5.0, liars=2),
}


class Liar:
    """Joins, and lies in a thread until it is told to leave."""

    def __init__(
        self, server: str, name: str, token: str, network: str, whole_ms: float,
        table: PartitionTable, truth: Truth, strategy: Strategy, kind: str = "auto",
    ) -> None:  # fmt: skip
        self._link = Link(server, token=token or None)
        self._who = DeviceIdentity(name, secrets.token_hex(8), kind, network)
        self._whole_ms = whole_ms
        self._table, self._truth, self._strategy = table, truth, strategy
        self._epochs: dict[PoolKey, int] = {}
        self._sequences: dict[tuple[PoolKey, str], int] = {}
        self._left = threading.Event()
        self.told = self.refused = 0
        self._join()
        self._thread = threading.Thread(target=self._lie, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._left.set()
        self._thread.join()
        self._link.close()

    def _join(self) -> None:
        request = JoinRequest(self._who, self._table.digest, whole_ms=self._whole_ms)
        welcome = self._link.join(request, 10.0)
        group = welcome.group or self._who.type
        policy = welcome.terms.policy
        scopes = {"front": f"group:{group}", "link": f"network:{self._who.network}"}
        for part in policy.parts:
            key = PoolKey(self._table.digest, self._table.version, policy.name, part.name,
                          scopes.get(part.name, "everyone"))  # fmt: skip
            self._epochs.setdefault(key, 0)

    def _lie(self) -> None:
        for number in itertools.count():
            if self._left.wait(self._strategy.every):
                return
            if self._strategy.fresh:
                self._who = self._who._replace(incarnation=secrets.token_hex(8))
            wanted = [key for key in self._epochs if key.part in self._strategy.parts]
            uploads = tuple(self._upload(key, number) for key in wanted)
            for _ in range(self._strategy.again):
                with suppress(CansError):  # told off: it goes on
                    reply = self._link.sync(SyncRequest(uploads), 10.0).result(10.0)
                    for each in reply.pools:
                        self._epochs[each.download.key] = each.download.epoch
                        self.refused += bool(each.refused)
                    self.told += len(uploads)

    def _upload(self, key: PoolKey, number: int) -> Upload:
        rows, truth = getattr(self._table, key.part), self._truth[key.part]
        possible = np.flatnonzero(rows.any(axis=1))
        if self._strategy.largest_only:
            possible = possible[np.argsort(-np.asarray(self._table.bytes_of)[possible])[:2]]
        row = int(possible[number % len(possible)])
        latency = max(float(truth[row]) * self._strategy.factor(number), 0.001)
        one = SufficientStatistics.of(rows[row], latency)
        count = self._strategy.count(number)
        # Policy `cans` gives slow observations less weight; a lie takes that of the truth.
        weighed = one.scaled(count * 9 / (9 + float(truth[row]) ** 2))
        said = replace(weighed, weight=float(count), count=count)
        sequence = self._sequences.get((key, self._who.incarnation), 0)
        self._sequences[key, self._who.incarnation] = sequence + 1
        return Upload(
            self._who.device, self._who.incarnation, key, self._epochs[key], sequence, said
        )
