"""CANS: devices of unequal speed share one edge server and learn together where to cut a DNN."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# ONNX Runtime reads this when it is first imported. Its telemetry would speak to the network in the
# user's name, and its threads let a forked process hang or abort when it ends.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# Public name -> where it lives. Imported on first use, so that a device never loads the simulator.
_PUBLIC = {
    "CansError": "cans.errors",
    "Device": "cans.live.device.device",
    "InferenceSession": "cans.program.session",
    "InputError": "cans.errors",
    "ModelError": "cans.errors",
    "RunError": "cans.errors",
    "PartitionTable": "cans.models.points.table",
    "simulate": "cans.simulation.run",
}

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cans' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
