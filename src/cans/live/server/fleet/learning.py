"""What the fleet has learned, as a document: pools in human units, uploads, the load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cans.learning import Download
from cans.live.server.fleet.pool_units import quantities

if TYPE_CHECKING:
    from cans.live.server.server import EdgeServer

MOST_POOLS = 200  # in one document, the latest first


class LearningView:
    """Reads a server's pools; what has not changed is not estimated again."""

    def __init__(self, server: EdgeServer) -> None:
        self._server = server
        self._known: dict[Any, tuple[Any, list[dict[str, Any]]]] = {}

    def to_dict(self) -> dict[str, Any]:
        """Everything the Learning view shows but the lines over time."""
        server = self._server
        # Pools of a model that was replaced stay remembered; nothing can be said of them here.
        offered = [p for p in server.pools.remembered() if server.catalogue.offers(p.key.model)]
        pools = sorted(offered, key=lambda each: -each.time)[:MOST_POOLS]
        return {
            "policy": server.options.terms.policy.name,
            "uploads": {"merged": server.pools.merged, "refused": server.pools.refused},
            "load": self._load(),
            "pools": [self._pool(each) for each in pools],
        }

    def _load(self) -> dict[str, Any]:
        workers, inside = self._server.workers.count, self._server.workers.inside
        return {
            "workers": workers,
            "running": min(inside, workers),
            "waiting": max(inside - workers, 0),
            "queue_ms": self._server.workers.queue_ms.quantile(0.5),
        }

    def _pool(self, pool: Download) -> dict[str, Any]:
        server, key = self._server, pool.key
        model = server.catalogue.find(key.model)
        with server.recorder.lock:
            record = server.recorder.pools.get(key)
            uploads, merged_at = (record.uploads, record.merged_at) if record else (0, 0.0)
        return {
            "part": key.part,
            "name": key.scope.partition(":")[2] or key.scope,
            "model": model.name,
            "epoch": pool.epoch,
            "observations": pool.statistics.count,
            "uploads": uploads,
            "age_s": round(server.clock.now() - merged_at, 1) if merged_at else None,
            "quantities": self._quantities(pool),
        }

    def _quantities(self, pool: Download) -> list[dict[str, Any]]:
        version = (pool.epoch, pool.round)
        known = self._known.get(pool.key)
        if known is None or known[0] != version:
            model = self._server.catalogue.find(pool.key.model)
            found = quantities(pool, model, self._server.options.terms)
            known = self._known[pool.key] = (version, [each._asdict() for each in found])
        return known[1]
