"""A device's side of traces: an inference with its front-end and its exchange with the server."""

from __future__ import annotations

from math import isfinite
from time import time
from typing import Any

from cans.live.device.reporting.report import Report
from cans.live.spans import Spans, TraceContext


class Traces:
    """Names traces before requests and makes spans after answers; without an endpoint, nothing."""

    def __init__(self, endpoint: str | None, device: str | None) -> None:
        self._spans = None if endpoint is None else Spans(endpoint, device or "cans-device")

    def begin(self) -> str:
        """What a request carries: the server's spans will hang below its exchange."""
        return "" if self._spans is None else str(TraceContext.new())

    def end(self, trace: str, report: Report, device: str) -> None:
        """Make the spans of an answered inference; `trace` as its request carried it, if any."""
        if self._spans is None:
            return
        context = TraceContext.parse(trace) if trace else TraceContext.new()
        now, total = time(), report.total_ms
        root = self._spans.add(
            "inference", context.trace, None, now, total,
            {
                "cans.device": device,
                "cans.point": report.point_name,
                "cans.codec": report.codec,
                "cans.answered_by": report.answered_by,
                "cans.fallback": report.fallback,
                "cans.why": report.why,
            },
        )  # fmt: skip
        rest = max(total - report.front_ms, 0.0)
        self._spans.add("front-end", context.trace, root, now - rest / 1e3, report.front_ms)
        if trace:
            taken: dict[str, Any] = {"cans.bytes_up": report.bytes_up}
            if isfinite(report.link_ms):
                taken["cans.link_ms"] = report.link_ms
            self._spans.add("link", context.trace, root, now, rest, taken, span=context.span)

    def close(self) -> None:
        if self._spans is not None:
            self._spans.close()
