"""Standard services beside our own: health checking and reflection."""

from __future__ import annotations

from typing import Any

from cans.errors import InputError
from cans.live.wire.proto import POOL


def add_health_and_reflection(server: Any) -> Any:
    """Let standard tools ask what a server offers and whether it is well; returns its health."""
    try:
        from grpc_health.v1 import health, health_pb2, health_pb2_grpc
        from grpc_reflection.v1alpha import reflection
    except ImportError:
        raise InputError("a server needs more packages; pip install 'cans-edge[server]'") from None
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names = ["cans.v1.Edge", "inference.GRPCInferenceService"]
    POOL.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)
    names.append(health.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=POOL)
    return servicer
