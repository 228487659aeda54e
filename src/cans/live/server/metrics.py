"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cans.errors import InputError, RunError
from cans.live.server.server import EdgeServer


def expose(server: EdgeServer, listen: str) -> None:
    """Answer scrapes on HOST:PORT."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
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
            inside = server.workers.admission.inside
            yield GaugeMetricFamily("cans_requests_inside", "Running or waiting", value=inside)
            queue = server.workers.queue_ms
            for share in (0.5, 0.99):
                gauge = GaugeMetricFamily(
                    f"cans_queue_ms_p{round(share * 100)}", "Waiting for a worker, last requests"
                )
                gauge.add_metric([], queue.quantile(share))
                yield gauge

    registry = CollectorRegistry()
    registry.register(Collector())
    try:
        start_http_server(int(port), host or "0.0.0.0", registry=registry)
    except OSError as error:
        raise RunError(f"cannot listen on {listen}: {error.strerror}") from None
