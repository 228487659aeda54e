"""What reflection tells about our services."""

from __future__ import annotations

from typing import Any

from cans.live.wire.proto import POOL

SERVICES = ("cans.v1.Edge", "inference.GRPCInferenceService")


def reflection_pool(*files: bytes) -> Any:
    """Descriptors of everything we serve, and of these serialized files."""
    for each in files:
        POOL.AddSerializedFile(each)
    return POOL
