"""Traces: one inference on a device and a server, in one trace, at a real collector."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

import cans
from cans.errors import InputError, RemoteProtocolError
from cans.live.device.hooked import HookedDevice
from cans.live.server.fleet.traces import ServerTraces
from cans.live.wire.inference import InferHeader, InferRequest
from tests.live.running import running, terms
from tests.live.toy import example, toy


class Collector:
    """An OTLP collector that keeps every span."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

        self.spans: list[Any] = []

        class Service(service.TraceServiceServicer):
            def Export(inside, request: Any, context: Any) -> Any:  # noqa: N802, N805
                for group in request.resource_spans:
                    for scope in group.scope_spans:
                        self.spans.extend(scope.spans)
                return messages.ExportTraceServiceResponse()

        self._server = grpc.server(ThreadPoolExecutor(2))
        service.add_TraceServiceServicer_to_server(Service(), self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def collector() -> Any:
    found = Collector()
    yield found
    found.close()


def test_device_and_server_are_in_one_trace(collector, tmp_path) -> None:
    split = toy(block_seconds=0.002)
    with running(split, terms=terms("cans")) as server:
        theirs = ServerTraces(server.server.recorder, collector.address)
        with HookedDevice(server.address, split, name="camera", state=tmp_path,
                         traces=collector.address) as device:  # fmt: skip
            device.hooks.force = 2
            device.infer(example())
            device.hooks.force = split.table.local
            device.infer(example())
            device.settle()
        time.sleep(0.1)
        theirs.close()
    traces: dict[bytes, dict[str, Any]] = {}
    for span in collector.spans:
        traces.setdefault(span.trace_id, {})[span.name] = span
    remote, local = sorted(traces.values(), key=len, reverse=True)
    assert set(remote) == {"inference", "front-end", "link", "wait", "back-end"}
    assert set(local) == {"inference", "front-end"}
    root = remote["inference"]
    assert not root.parent_span_id
    assert remote["front-end"].parent_span_id == root.span_id
    assert remote["link"].parent_span_id == root.span_id
    for name in ("wait", "back-end"):
        assert remote[name].parent_span_id == remote["link"].span_id
    back = remote["back-end"]
    assert 2e6 < back.end_time_unix_nano - back.start_time_unix_nano < 1e9
    attributes = {each.key: each.value for each in root.attributes}
    assert attributes["cans.device"].string_value == "camera"
    assert attributes["cans.point"].string_value == "p2"


def test_without_an_endpoint_nothing_travels(tmp_path) -> None:
    split = toy()
    with (
        running(split) as server,
        HookedDevice(server.address, split, name="camera", state=tmp_path) as device,
    ):
        device.hooks.force = 1
        device.infer(example())
    with pytest.raises(InputError, match="HOST:PORT"):
        cans.Device(server.address, split, state=tmp_path, traces="nowhere")


def test_a_trace_that_is_none_is_refused() -> None:
    header = InferHeader("d", "1", "m", "t", 0, "float32", (), trace="00-no-trace-01")
    with pytest.raises(RemoteProtocolError, match="traceparent"):
        InferRequest.from_bytes(InferRequest(header, []).to_bytes())
