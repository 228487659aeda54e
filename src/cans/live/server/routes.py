"""Every method that a server answers, and who does."""

from __future__ import annotations

from typing import Any

import grpc

from cans.live.server.door.gate import Gate
from cans.live.server.edge_service import EdgeService
from cans.live.server.open_inference import OpenInferenceService
from cans.live.wire.account import StatusRequest
from cans.live.wire.inference import InferRequest
from cans.live.wire.load import QuoteRequest
from cans.live.wire.messages import JoinRequest, ProbeRequest, SyncRequest, WatchRequest
from cans.live.wire.model_files import FetchRequest, ModelPiece
from cans.live.wire.open_inference import (
    WholeRequest,
    model_metadata_request,
    model_ready_request,
    nothing,
)
from cans.live.wire.reflected import SERVICES


def handlers(gate: Gate, edge: EdgeService, whole: OpenInferenceService) -> list[Any]:
    """Everything this server answers, for `add_generic_rpc_handlers`."""
    answers, streams = gate.answers, gate.streams
    ours = {
        "Join": answers("Join", JoinRequest.from_bytes, edge.join),
        "Infer": answers("Infer", InferRequest.from_bytes, edge.infer),
        "InferLarge": gate.gathers("InferLarge", edge.infer_large),
        "Sync": answers("Sync", SyncRequest.from_bytes, edge.sync),
        "Probe": answers("Probe", ProbeRequest.from_bytes, edge.probe),
        "Quote": answers("Quote", QuoteRequest.from_bytes, edge.quote),
        "Watch": streams("Watch", WatchRequest.from_bytes, edge.watch),
        "Status": answers("Status", StatusRequest.from_bytes, edge.status),
        "SendModel": answers("SendModel", ModelPiece.from_bytes, edge.send_model),
        "FetchModel": streams("FetchModel", FetchRequest.from_bytes, edge.fetch_model),
    }
    public = {
        "ServerLive": answers("ServerLive", nothing, whole.server_live),
        "ServerReady": answers("ServerReady", nothing, whole.server_ready),
        "ServerMetadata": answers("ServerMetadata", nothing, whole.server_metadata),
        "ModelReady": answers("ModelReady", model_ready_request, whole.model_ready),
        "ModelMetadata": answers("ModelMetadata", model_metadata_request, whole.model_metadata),
        "ModelInfer": answers("ModelInfer", WholeRequest.from_bytes, whole.model_infer),
    }
    services = zip(SERVICES, (ours, public), strict=True)
    return [grpc.method_handlers_generic_handler(name, methods) for name, methods in services]
