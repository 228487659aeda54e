"""Values as database columns."""

from __future__ import annotations

import json

from cans.learning import SufficientStatistics
from cans.learning.edge import Pool, Received
from cans.live import wire
from cans.live.proto import edge
from cans.live.store.base import StoredPool

# epoch, round, statistics, retired, refused, time, and the evidence of change (slower, faster)
PoolRow = tuple[int, int, bytes, bytes | None, int, float, float, float]
COLUMNS = "epoch, round, statistics, retired, refused, time, slower, faster"


def pool_row(stored: StoredPool) -> PoolRow:
    pool = stored.pool
    retired = None if pool.retired is None else _blob(pool.retired)
    return (
        pool.epoch, pool.round, _blob(pool.statistics), retired, stored.refused, pool.time,
        *pool.alarm,
    )  # fmt: skip


def row_pool(row: PoolRow) -> StoredPool:
    epoch, round_, statistics, retired, refused, time, slower, faster = row
    pool = Pool(
        _statistics(statistics),
        epoch,
        round_,
        time,
        (slower, faster),
        None if retired is None else _statistics(retired),
    )
    return StoredPool(pool, refused)


def received_row(received: Received) -> tuple[int, str]:
    return received.next, json.dumps(sorted(received.beyond))


def row_received(row: tuple[int, str] | None) -> Received:
    return Received() if row is None else Received(row[0], frozenset(json.loads(row[1])))


def _blob(statistics: SufficientStatistics) -> bytes:
    return wire.serialized(wire.statistics_out(statistics))


def _statistics(blob: bytes) -> SufficientStatistics:
    return wire.statistics_in(wire.parse(edge.Statistics, bytes(blob)))
