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


class Collector:
    """Every metric of a server; asked by a thread of the exporter."""

    def __init__(self, server: EdgeServer) -> None:
        from cans.live.server.fleet.measures import Measures

        self._server = server
        self._measures = Measures(server.recorder)

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        from cans.live.server.fleet.measures import METRICS, series

        self._server.recorder.digest()
        histograms, counted = self._measures.read()
        numbers = {**counted, **self._counters(), **self._gauges()}
        families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        for name, metric in METRICS.items():
            if metric.kind == "histogram":
                family = HistogramMetricFamily(name, metric.help, labels=metric.labels)
                for key in series(histograms, name):
                    buckets = histograms[key]
                    family.add_metric(key[1:], buckets.cumulative(), buckets.sum)
            else:
                family = families[metric.kind](name, metric.help, labels=metric.labels)
                for key in series(numbers, name):
                    family.add_metric(key[1:], numbers[key])
                if not metric.labels and not family.samples:
                    family.add_metric((), 0)
            yield family

    def _counters(self) -> dict[tuple[str, ...], float]:
        server = self._server
        return {
            **{("cans_calls_total", *key): count for key, count in list(server.gate.calls.items())},
            ("cans_uploads_total", "merged"): server.pools.merged,
            ("cans_uploads_total", "refused"): server.pools.refused,
            ("cans_happenings_dropped_total",): server.recorder.happenings.dropped,
        }

    def _gauges(self) -> dict[tuple[str, ...], float]:
        from cans.live.server.fleet.status import totals

        server = self._server
        with server.recorder.lock:
            found = totals(server.recorder)
        states = {"new": 0, "offloading": 0, "local": 0, "breaker": 0, "gone": 0, **found["states"]}
        return {
            **{("cans_devices", state): count for state, count in states.items()},
            ("cans_requests_inside",): server.workers.inside,
            ("cans_workers",): server.workers.count,
            ("cans_saved_seconds", "local"): found["saved_local_s"],
            ("cans_saved_seconds", "offload"): found["saved_offload_s"],
        }


def expose(server: EdgeServer, listen: str) -> None:
    """Answer scrapes on HOST:PORT."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise InputError("--metrics needs more packages; pip install 'cans-edge[server]'") from None
    host, _, port = listen.rpartition(":")
    if not port.isdigit():
        raise InputError(f"--metrics must be HOST:PORT, not {listen!r}")
    registry = CollectorRegistry()
    registry.register(Collector(server))
    try:
        start_http_server(int(port), host or "0.0.0.0", registry=registry)
    except OSError as error:
        raise RunError(f"cannot listen on {listen}: {error.strerror}") from None
