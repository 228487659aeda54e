"""Between gRPC and the services: who calls, and which status an error becomes.

Messages are taken as raw bytes and parsed by the services, so that garbage is answered with
INVALID_ARGUMENT like any other mistake of a caller, and tensors are not copied by protobuf.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc

from cans.errors import (
    CansError,
    DeadlineExceeded,
    InputError,
    Refused,
    RemoteProtocolError,
    StoreError,
    Unreachable,
)
from cans.live.server.edge_service import Caller, EdgeService
from cans.live.server.open_inference import OpenInferenceService
from cans.live.server.tokens import ANY, TokenFile

_log = logging.getLogger(__name__)
_STATUS = {
    RemoteProtocolError: grpc.StatusCode.INVALID_ARGUMENT,
    InputError: grpc.StatusCode.INVALID_ARGUMENT,
    # Not UNAVAILABLE: the server is there, and can run back-ends; only send the uploads again.
    StoreError: grpc.StatusCode.ABORTED,
    Unreachable: grpc.StatusCode.UNAVAILABLE,
    DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_LONGEST_MESSAGE = 1000  # of an error, in characters


def status_of(error: CansError) -> grpc.StatusCode:
    """The status that says whose mistake it was."""
    if isinstance(error, Refused):
        return grpc.StatusCode[error.code]
    for kind, code in _STATUS.items():
        if isinstance(error, kind):
            return code
    return grpc.StatusCode.INTERNAL


class Gate:
    """Lets callers in and puts errors into words."""

    def __init__(self, tokens: TokenFile | None) -> None:
        self._tokens = tokens
        self.calls: dict[tuple[str, str], int] = {}  # (method, status) -> how many

    def caller(self, context: Any) -> Caller:
        device = ANY
        if self._tokens is not None:
            device = self._tokens.device(_bearer(context.invocation_metadata()))
        return Caller(device)

    def count(self, method: str, status: str) -> None:
        self.calls[method, status] = self.calls.get((method, status), 0) + 1

    async def refuse(self, context: Any, method: str, error: Exception) -> NoReturn:
        if isinstance(error, CansError):
            code, message = status_of(error), str(error)
        else:
            _log.exception("a request failed by our own mistake", exc_info=error)
            code, message = grpc.StatusCode.INTERNAL, "internal error; see the server's log"
        self.count(method, code.name)
        if code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            _log.warning(
                "request refused",
                extra={"method": method, "code": code.name, "reason": message,
                       "peer": context.peer()},
            )  # fmt: skip
        await context.abort(code, message[:_LONGEST_MESSAGE])
        raise AssertionError("abort always raises")

    def answers(self, method: str, function: Callable[[Any, Caller], Awaitable[bytes]]) -> Any:
        """One answer to one request (or to a stream of pieces)."""

        async def handle(request: Any, context: Any) -> bytes:
            try:
                reply = await function(request, self.caller(context))
            except Exception as error:
                await self.refuse(context, method, error)
            self.count(method, "OK")
            return reply

        return handle

    def streams(
        self, method: str, function: Callable[[bytes, Caller], AsyncIterator[bytes]]
    ) -> Any:
        """A stream of answers; the caller must stay welcome all along."""

        async def handle(request: bytes, context: Any) -> AsyncIterator[bytes]:
            try:
                async for reply in function(request, self.caller(context)):
                    yield reply
                    self.caller(context)
            except Exception as error:
                await self.refuse(context, method, error)
            self.count(method, "OK")

        return handle


def _bearer(metadata: Any) -> str | None:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            return value.removeprefix("Bearer ")
    return None


def handlers(gate: Gate, edge: EdgeService, whole: OpenInferenceService) -> list[Any]:
    """Everything this server answers, for `add_generic_rpc_handlers`."""
    unary, pieces = grpc.unary_unary_rpc_method_handler, grpc.stream_unary_rpc_method_handler
    stream = grpc.unary_stream_rpc_method_handler
    ours = {
        "Join": unary(gate.answers("Join", edge.join)),
        "Infer": unary(gate.answers("Infer", edge.infer)),
        "InferLarge": pieces(gate.answers("InferLarge", edge.infer_large)),
        "Sync": unary(gate.answers("Sync", edge.sync)),
        "Probe": unary(gate.answers("Probe", edge.probe)),
        "Watch": stream(gate.streams("Watch", edge.watch)),
        "FetchModel": stream(gate.streams("FetchModel", edge.fetch_model)),
    }
    theirs = {
        "ServerLive": whole.server_live,
        "ServerReady": whole.server_ready,
        "ModelReady": whole.model_ready,
        "ServerMetadata": whole.server_metadata,
        "ModelMetadata": whole.model_metadata,
        "ModelInfer": whole.model_infer,
    }
    public = {name: unary(gate.answers(name, each)) for name, each in theirs.items()}
    return [
        grpc.method_handlers_generic_handler("cans.v1.Edge", ours),
        grpc.method_handlers_generic_handler("inference.GRPCInferenceService", public),
    ]
