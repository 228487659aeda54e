"""What a server counts, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cans.errors import InputError, RunError

if TYPE_CHECKING:
    from cans.live.server.server import EdgeServer

BOUNDS_MS = tuple(0.01 * 2.0**i for i in range(24))
"""Upper bounds of a histogram's buckets: 0.01 ms to 84 s, each twice the one before."""


class Histogram:
    """How often values fell into buckets: adding one costs the same however many there were.

    >>> times = Histogram()
    >>> for value in (0.5, 1.0, 2.0, 30.0):
    ...     times.add(value)
    >>> times.count, times.quantile(0.5), times.quantile(1.0)
    (4, 1.28, 40.96)
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS_MS, value)] += 1
        self.sum += value
        self.count += 1

    def quantile(self, share: float) -> float:
        """The upper bound of the bucket that holds it; 0 if there is nothing."""
        wanted, seen = share * self.count, 0
        for bound, count in zip((*BOUNDS_MS, float("inf")), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return 0.0

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus has them."""
        found, seen = [], 0
        for bound, count in zip((*map(str, BOUNDS_MS), "+Inf"), self.counts, strict=True):
            seen += count
            found.append((bound, float(seen)))
        return found


def expose(server: EdgeServer, listen: str) -> None:
    """Answer scrapes on HOST:PORT."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )
    except ImportError:
        raise InputError("--metrics needs more packages; pip install 'cans-edge[server]'") from None
    host, _, port = listen.rpartition(":")
    if not port.isdigit():
        raise InputError(f"--metrics must be HOST:PORT, not {listen!r}")

    class Collector:
        def collect(self) -> Iterator[Any]:
            calls = CounterMetricFamily("cans_calls", "Calls by status", labels=["method", "code"])
            for (method, code), count in sorted(server.gate.calls.items()):
                calls.add_metric([method, code], count)
            yield calls
            uploads = CounterMetricFamily("cans_uploads", "Uploads by verdict", labels=["verdict"])
            uploads.add_metric(["merged"], server.pools.merged)
            uploads.add_metric(["refused"], server.pools.refused)
            yield uploads
            inside = server.workers.inside
            yield GaugeMetricFamily("cans_requests_inside", "Running or waiting", value=inside)
            waits = server.workers.queue_ms
            queue = HistogramMetricFamily("cans_queue_ms", "Waiting for a worker")
            queue.add_metric([], waits.buckets(), waits.sum)
            yield queue

    registry = CollectorRegistry()
    registry.register(Collector())
    try:
        start_http_server(int(port), host or "0.0.0.0", registry=registry)
    except OSError as error:
        raise RunError(f"cannot listen on {listen}: {error.strerror}") from None
