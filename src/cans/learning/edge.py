"""`EdgeAggregator`: the server's side of every policy (Alg. 2), as a pure value machine.

`Pool` is immutable and `merged` a pure function, so that the same rules run over a dictionary in
the simulator and inside a database transaction on a server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from cans.learning import physical
from cans.learning.messages import Download, PoolKey, Upload
from cans.learning.policies import policy_named
from cans.learning.statistics import SufficientStatistics


@dataclass(frozen=True)
class Received:
    """Which sequence numbers of one device were taken in: all below `next`, and some beyond."""

    next: int = 0
    beyond: frozenset[int] = frozenset()

    def __contains__(self, sequence: int) -> bool:
        return sequence < self.next or sequence in self.beyond

    def including(self, sequence: int) -> Received:
        beyond = self.beyond | {sequence}
        upto = self.next
        while upto in beyond:
            beyond -= {upto}
            upto += 1
        return Received(upto, beyond)


@dataclass(frozen=True)
class Rules:
    """Whether a pool is watched, and may start anew; the paper's never are."""

    watched: bool = False
    ridge: float = 0.01


PLAIN = Rules()


def rules_of(key: PoolKey) -> Rules:
    """The rules of a pool: its policy is part of its name."""
    policy = policy_named(key.policy)
    part = policy.part(key.part)
    ridge = PLAIN.ridge if policy.ridge is None else policy.ridge
    return Rules(part.watched, ridge)


@dataclass(frozen=True)
class Pool:
    """Everything merged under one key, and what the laws need to account for the rest."""

    statistics: SufficientStatistics
    epoch: int = 0
    round: int = 0  # merges so far: the paper's logical order t
    time: float = 0.0  # of the last merge, seconds by the server's clock
    alarm: tuple[float, float] = (0.0, 0.0)  # evidence of having become slower, and faster
    retired: SufficientStatistics | None = None  # of epochs that ended, late uploads included
    doubted: SufficientStatistics | None = None  # what was taken off uploads that were far off

    @classmethod
    def empty(cls, dimension: int) -> Pool:
        return cls(SufficientStatistics.zero(dimension))


def merged(
    pool: Pool, received: Received, upload: Upload, time: float = 0.0, rules: Rules = PLAIN
) -> tuple[Pool, Received]:
    """Alg. 2 lines 3 and 7, made safe: a repeat changes nothing, a late epoch is retired.

    `received` is what this pool has taken in from the upload's sender before; `time` is the
    server's.
    """
    if upload.sequence in received:
        return pool, received
    received = received.including(upload.sequence)
    if upload.epoch < pool.epoch:
        return replace(pool, retired=_plus(pool.retired, upload.statistics)), received
    pool, fresh = replace(pool, time=max(pool.time, time)), upload.statistics
    if rules.watched:
        pool, fresh = _watched(pool, fresh, rules)
    return replace(pool, statistics=pool.statistics + fresh, round=pool.round + 1), received


def _watched(
    pool: Pool, upload: SufficientStatistics, rules: Rules
) -> tuple[Pool, SufficientStatistics]:
    """The pool with the evidence of this upload, or started anew if that was too much; and as
    much of the upload as is believed."""
    width = pool.statistics.dimension
    alarm = np.array(pool.alarm)
    residual = physical.surprise(
        pool.statistics.pack(width), upload.pack(width), rules.ridge, width
    )
    if physical.alarmed(alarm, residual):
        past = physical.carried_over(pool.statistics.pack(width), upload.pack(width), rules.ridge)
        return restarted(pool, SufficientStatistics.unpack(past, width)), upload
    trusted = upload.scaled(physical.trust(residual))
    doubted = _plus(pool.doubted, replace(upload - trusted, count=0))
    return replace(pool, alarm=(float(alarm[0]), float(alarm[1])), doubted=doubted), trusted


def restarted(pool: Pool, past: SufficientStatistics | None = None) -> Pool:
    """A reset is a decision of the server: a new epoch, and what was known is retired. Of its past
    it may start with sums that stand for no observation."""
    return replace(
        pool,
        statistics=past or SufficientStatistics.zero(pool.statistics.dimension),
        epoch=pool.epoch + 1,
        alarm=(0.0, 0.0),
        retired=_plus(pool.retired, pool.statistics),
    )


def _plus(
    retired: SufficientStatistics | None, statistics: SufficientStatistics
) -> SufficientStatistics:
    return statistics if retired is None else retired + statistics


Sender = tuple[PoolKey, str, str]  # pool, device, incarnation


class EdgeAggregator:
    """Holds the pools of a fleet and merges uploads into them."""

    def __init__(self) -> None:
        self.pools: dict[PoolKey, Pool] = {}
        self.received: dict[Sender, Received] = {}

    def join(self, uploads: Iterable[Upload], time: float = 0.0) -> tuple[Download, ...]:
        """A device arrives with the offline experience of each shared part as sequence 0."""
        return tuple(self.merge(upload, time) for upload in uploads)

    def merge(self, upload: Upload, time: float = 0.0) -> Download:
        """Add an upload to its pool and return the pool (Alg. 2)."""
        dimension = upload.statistics.dimension
        pool = self.pools.get(upload.key) or Pool.empty(dimension)
        if pool.statistics.dimension != dimension:
            raise ValueError(
                f"an upload of dimension {dimension} cannot enter a pool of dimension "
                f"{pool.statistics.dimension}: {upload.key}"
            )
        sender = (upload.key, upload.device, upload.incarnation)
        received = self.received.get(sender, Received())
        pool, received = merged(pool, received, upload, time, rules_of(upload.key))
        self.pools[upload.key], self.received[sender] = pool, received
        return download_of(upload.key, pool, upload.sequence)

    def download(self, key: PoolKey) -> Download:
        """The pool as it is now; a device has joined it before."""
        return download_of(key, self.pools[key])

    def reset(self, key: PoolKey) -> None:
        """Start a pool anew."""
        self.pools[key] = restarted(self.pools[key])


def download_of(key: PoolKey, pool: Pool, acknowledged: int | None = None) -> Download:
    """The message that carries a pool."""
    return Download(key, pool.epoch, pool.statistics, pool.round, acknowledged, pool.time)
