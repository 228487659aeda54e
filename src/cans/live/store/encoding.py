"""Values as database columns."""

from __future__ import annotations

import json

from cans.learning import SufficientStatistics
from cans.learning.edge import PoolContents, Received
from cans.live.store.base import StoredPool
from cans.live.store.shares import Share
from cans.live.wire.learned import statistics_from_bytes, statistics_to_bytes

PoolRow = tuple[int, int, bytes, bytes | None, int, float, float, float, bytes | None]
COLUMNS = "epoch, round, statistics, retired, refused, time, slower, faster, doubted"
ShareRow = tuple[int, bytes, float, float, float]
SHARES = "epoch, said, time, until, banned"
REFUSALS = "uploads, observations, sequence, reason, time"


def pool_row(stored: StoredPool) -> PoolRow:
    pool = stored.pool
    return (
        pool.epoch, pool.round, statistics_to_bytes(pool.statistics), _blob_or_none(pool.retired),
        stored.refused, pool.time, *pool.alarm, _blob_or_none(pool.doubted),
    )  # fmt: skip


def row_pool(row: PoolRow) -> StoredPool:
    epoch, round_, statistics, retired, refused, time, slower, faster, doubted = row
    pool = PoolContents(
        _statistics(statistics),
        epoch,
        round_,
        time,
        (slower, faster),
        retired=None if retired is None else _statistics(retired),
        doubted=None if doubted is None else _statistics(doubted),
    )
    return StoredPool(pool, refused)


def received_row(received: Received) -> tuple[int, str]:
    return received.next, json.dumps(sorted(received.beyond))


def row_received(row: tuple[int, str] | None) -> Received:
    return Received() if row is None else Received(row[0], frozenset(json.loads(row[1])))


def share_row(share: Share) -> ShareRow:
    return share.epoch, statistics_to_bytes(share.said), share.time, share.until, share.banned


def row_share(row: ShareRow | None) -> Share | None:
    return None if row is None else Share(row[0], _statistics(row[1]), *row[2:])


def _blob_or_none(statistics: SufficientStatistics | None) -> bytes | None:
    return None if statistics is None else statistics_to_bytes(statistics)


def _statistics(blob: bytes) -> SufficientStatistics:
    return statistics_from_bytes(bytes(blob))
