"""OpenTelemetry spans of what has already happened, with identifiers that both sides agree on.

A device names a trace before it sends a request and makes its spans after the answer; the server
makes its own from what it recorded. So nobody waits for tracing. Exported by OTLP over gRPC.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

from cans.errors import InputError


class TraceContext(NamedTuple):
    """A trace and the span below which others hang, as `traceparent` of W3C writes them."""

    trace: int
    span: int

    @classmethod
    def new(cls) -> TraceContext:
        return cls(secrets.randbits(128) | 1, secrets.randbits(64) | 1)

    def __str__(self) -> str:
        return f"00-{self.trace:032x}-{self.span:016x}-01"

    @classmethod
    def parse(cls, text: str) -> TraceContext:
        """What a checked `traceparent` says.

        >>> TraceContext.parse("00-000000000000000000000000000000ff-0000000000000007-01")
        TraceContext(trace=255, span=7)
        """
        _, trace, span, _ = text.split("-")
        return cls(int(trace, 16), int(span, 16))


class _GivenIds:
    """An `IdGenerator` that hands out what it was told to."""

    def __init__(self) -> None:
        self.trace = self.span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span

    def is_trace_id_random(self) -> bool:
        return True


class Spans:
    """Exports spans to a collector. `add` is for one thread at a time and never waits."""

    def __init__(self, endpoint: str, service: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise InputError(
                "--traces needs more packages; pip install 'cans-edge[otel]'"
            ) from None
        if ":" not in endpoint:
            raise InputError(f"--traces must be HOST:PORT of an OTLP collector, not {endpoint!r}")
        self._ids = _GivenIds()
        resource = Resource.create({"service.name": service})
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids,  # type: ignore[arg-type]
            shutdown_on_exit=False,
        )  # fmt: skip
        plain = not endpoint.startswith("https://")
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=plain)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("cans")

    def add(
        self,
        name: str,
        trace: int,
        parent: int | None,
        end: float,
        duration_ms: float,
        attributes: dict[str, Any] | None = None,
        span: int | None = None,
    ) -> int:
        """A span that ended at `end` (seconds since 1970) and took so long; returns its number."""
        from opentelemetry.trace import (
            NonRecordingSpan,
            SpanContext,
            TraceFlags,
            set_span_in_context,
        )

        self._ids.trace, self._ids.span = trace, span or secrets.randbits(64) | 1
        context = set_span_in_context(NonRecordingSpan(SpanContext(0, 0, False)))
        if parent is not None:
            above = SpanContext(trace, parent, True, TraceFlags(TraceFlags.SAMPLED))
            context = set_span_in_context(NonRecordingSpan(above))
        ended = round(end * 1e9)
        started = ended - round(duration_ms * 1e6)
        made = self._tracer.start_span(name, context, attributes=attributes, start_time=started)
        made.end(ended)
        return self._ids.span

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
