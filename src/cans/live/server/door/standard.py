"""Standard services beside our own, health checking and reflection, behind the same gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from cans.errors import InputError
from cans.live.server.door.gate import Gate
from cans.live.wire.reflected import SERVICES, reflection_pool


class _Behind:
    """Takes the handlers that a library makes for a server, and puts the gate before them."""

    def __init__(self, gate: Gate, server: Any) -> None:
        self._gate = gate
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        pass  # the same as below, under another name

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        guarded = {name: _guarded(self._gate, each) for name, each in handlers.items()}
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, guarded)]
        )


def _guarded(gate: Gate, handler: Any) -> Any:
    """Health is open to everyone, within bounds; reflection to those who may call."""
    if handler.request_streaming:

        async def talk(requests: Any, context: Any) -> AsyncIterator[Any]:
            async with gate.place(context, known=True):
                async for reply in handler.stream_stream(requests, context):
                    yield reply

        return grpc.stream_stream_rpc_method_handler(
            talk, handler.request_deserializer, handler.response_serializer
        )

    async def read(context: Any) -> Any:
        async with gate.place(context, known=False) as first:
            return handler.request_deserializer(await first())

    if handler.response_streaming:

        async def tell(_: object, context: Any) -> None:
            await handler.unary_stream(await read(context), context)

        return grpc.stream_stream_rpc_method_handler(tell, None, handler.response_serializer)

    async def answer(_: object, context: Any) -> Any:
        return await handler.unary_unary(await read(context), context)

    return grpc.stream_unary_rpc_method_handler(answer, None, handler.response_serializer)


def add_health_and_reflection(gate: Gate, server: Any) -> Any:
    """Let standard tools ask what a server offers and whether it is well; returns its health."""
    try:
        from grpc_health.v1 import health, health_pb2, health_pb2_grpc
        from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
    except ImportError:
        raise InputError("a server needs more packages; pip install 'cans-edge[server]'") from None
    behind = _Behind(gate, server)
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, behind)
    pool = reflection_pool(health_pb2.DESCRIPTOR.serialized_pb)
    names = [*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
        reflection.aio.ReflectionServicer(names, pool=pool), behind
    )
    return servicer
