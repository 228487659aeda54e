"""`EdgeAggregator`: the server's side of every policy (Alg. 2), as a pure value machine.

`Pool` is immutable and `merged` a pure function, so that the same rules run over a dictionary in
the simulator and inside a database transaction on a server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cans.learning.messages import Download, PoolKey, Upload
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
class Pool:
    """Everything merged under one key, and what the laws need to account for the rest."""

    statistics: SufficientStatistics
    epoch: int = 0
    round: int = 0  # merges so far: the paper's logical order t
    retired: SufficientStatistics | None = None  # of epochs that ended, late uploads included

    @classmethod
    def empty(cls, dimension: int) -> Pool:
        return cls(SufficientStatistics.zero(dimension))


def merged(pool: Pool, received: Received, upload: Upload) -> tuple[Pool, Received]:
    """Alg. 2 lines 3 and 7, made safe: a repeat changes nothing, a late epoch is retired.

    `received` is what this pool has taken in from the upload's sender before.
    """
    if upload.sequence in received:
        return pool, received
    received = received.including(upload.sequence)
    if upload.epoch < pool.epoch:
        return replace(pool, retired=_plus(pool.retired, upload.statistics)), received
    total = pool.statistics + upload.statistics
    return replace(pool, statistics=total, round=pool.round + 1), received


def restarted(pool: Pool) -> Pool:
    """A reset is a decision of the server: a new epoch, and what was known is retired."""
    return replace(
        pool,
        statistics=SufficientStatistics.zero(pool.statistics.dimension),
        epoch=pool.epoch + 1,
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
        pool, received = merged(pool, self.received.get(sender, Received()), upload)
        self.pools[upload.key], self.received[sender] = pool, received
        return download_of(upload.key, pool, time, upload.sequence)

    def download(self, key: PoolKey, time: float = 0.0) -> Download:
        """The pool as it is now; a device has joined it before."""
        return download_of(key, self.pools[key], time)

    def reset(self, key: PoolKey) -> None:
        """Start a pool anew."""
        self.pools[key] = restarted(self.pools[key])


def download_of(
    key: PoolKey, pool: Pool, time: float = 0.0, acknowledged: int | None = None
) -> Download:
    """The message that carries a pool."""
    return Download(key, pool.epoch, pool.statistics, pool.round, acknowledged, time)
