"""Between gRPC and the services: who calls, what they say, and which status an error becomes.

Messages are taken from gRPC as raw bytes and become values here, so that garbage is answered with
INVALID_ARGUMENT like any other mistake of a caller, and tensors are not copied by protobuf.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, Protocol, TypeVar

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
from cans.live.clock import Clock
from cans.live.server.edge_service import EdgeService
from cans.live.server.fleet.happenings import Happenings, Rejected
from cans.live.server.identity import Caller, TokenFile
from cans.live.server.open_inference import OpenInferenceService
from cans.live.wire.account import StatusRequest
from cans.live.wire.inference import InferRequest
from cans.live.wire.messages import JoinRequest, ProbeRequest, SyncRequest, WatchRequest
from cans.live.wire.model_files import FetchRequest
from cans.live.wire.open_inference import (
    WholeRequest,
    model_metadata_request,
    model_ready_request,
    nothing,
)

Request = TypeVar("Request")


class Message(Protocol):
    """An answer."""

    def to_bytes(self) -> bytes: ...


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

    def __init__(
        self,
        tokens: TokenFile | None,
        happenings: Happenings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._tokens = tokens
        self._happenings = happenings or Happenings()
        self._clock = clock or Clock()
        self.calls: dict[tuple[str, str], int] = {}  # (method, status) -> how many

    def caller(self, context: Any) -> Caller:
        if self._tokens is None:
            return Caller()
        return Caller(self._tokens.device(_bearer(context.invocation_metadata())))

    def count(self, method: str, status: str) -> None:
        self.calls[method, status] = self.calls.get((method, status), 0) + 1

    async def refuse(self, context: Any, method: str, error: Exception) -> NoReturn:
        if isinstance(error, CansError):
            code, message = status_of(error), str(error)
        else:
            _log.exception("a request failed by our own mistake", exc_info=error)
            code, message = grpc.StatusCode.INTERNAL, "internal error; see the server's log"
        self.count(method, code.name)
        self._happenings.add(Rejected(self._clock.now(), method, code.name, message, ""))
        if code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            _log.warning(
                "request refused",
                extra={"method": method, "code": code.name, "reason": message,
                       "peer": context.peer()},
            )  # fmt: skip
        await context.abort(code, message[:_LONGEST_MESSAGE])
        raise AssertionError("abort always raises")

    def answers(
        self,
        method: str,
        read: Callable[[bytes], Request],
        function: Callable[[Request, Caller], Awaitable[Message]],
    ) -> Any:
        """One answer to one request."""

        async def handle(data: bytes, context: Any) -> bytes:
            try:
                caller = self.caller(context)
                reply = await function(read(data), caller)
            except Exception as error:
                await self.refuse(context, method, error)
            self.count(method, "OK")
            return reply.to_bytes()

        return grpc.unary_unary_rpc_method_handler(handle)

    def gathers(
        self, method: str, function: Callable[[AsyncIterator[bytes], Caller], Awaitable[Message]]
    ) -> Any:
        """One answer to a stream of pieces."""

        async def handle(pieces: AsyncIterator[bytes], context: Any) -> bytes:
            try:
                reply = await function(pieces, self.caller(context))
            except Exception as error:
                await self.refuse(context, method, error)
            self.count(method, "OK")
            return reply.to_bytes()

        return grpc.stream_unary_rpc_method_handler(handle)

    def streams(
        self,
        method: str,
        read: Callable[[bytes], Request],
        function: Callable[[Request, Caller], AsyncIterator[Message]],
    ) -> Any:
        """A stream of answers; the caller must stay welcome all along."""

        async def handle(data: bytes, context: Any) -> AsyncIterator[bytes]:
            try:
                caller = self.caller(context)
                async for reply in function(read(data), caller):
                    yield reply.to_bytes()
                    self.caller(context)
            except Exception as error:
                await self.refuse(context, method, error)
            self.count(method, "OK")

        return grpc.unary_stream_rpc_method_handler(handle)


def _bearer(metadata: Any) -> str | None:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            return value.removeprefix("Bearer ")
    return None


def handlers(gate: Gate, edge: EdgeService, whole: OpenInferenceService) -> list[Any]:
    """Everything this server answers, for `add_generic_rpc_handlers`."""
    answers, streams = gate.answers, gate.streams
    ours = {
        "Join": answers("Join", JoinRequest.from_bytes, edge.join),
        "Infer": answers("Infer", InferRequest.from_bytes, edge.infer),
        "InferLarge": gate.gathers("InferLarge", edge.infer_large),
        "Sync": answers("Sync", SyncRequest.from_bytes, edge.sync),
        "Probe": answers("Probe", ProbeRequest.from_bytes, edge.probe),
        "Watch": streams("Watch", WatchRequest.from_bytes, edge.watch),
        "Status": answers("Status", StatusRequest.from_bytes, edge.status),
        "FetchModel": streams("FetchModel", FetchRequest.from_bytes, edge.fetch_model),
    }
    theirs: dict[str, Any] = {
        "ServerLive": whole.server_live,
        "ServerReady": whole.server_ready,
        "ServerMetadata": whole.server_metadata,
        "ModelReady": whole.model_ready,
        "ModelMetadata": whole.model_metadata,
        "ModelInfer": whole.model_infer,
    }
    readers = {"ModelInfer": WholeRequest.from_bytes, "ModelReady": model_ready_request,
               "ModelMetadata": model_metadata_request}  # fmt: skip
    public = {
        name: answers(name, readers.get(name, nothing), function)
        for name, function in theirs.items()
    }
    return [
        grpc.method_handlers_generic_handler("cans.v1.Edge", ours),
        grpc.method_handlers_generic_handler("inference.GRPCInferenceService", public),
    ]
