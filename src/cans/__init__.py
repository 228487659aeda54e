"""CANS: devices of unequal speed share one edge server and learn together where to cut a DNN."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# ONNX Runtime reads this when it is first imported. Its telemetry would speak to the network in the
# user's name, and its threads let a forked process hang or abort when it ends.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:  # what a type checker sees; nothing is imported before it is used
    from cans.errors import Busy as Busy
    from cans.errors import CansError as CansError
    from cans.errors import DeadlineExceeded as DeadlineExceeded
    from cans.errors import InputError as InputError
    from cans.errors import LocalProtocolError as LocalProtocolError
    from cans.errors import ModelError as ModelError
    from cans.errors import ProtocolError as ProtocolError
    from cans.errors import Refused as Refused
    from cans.errors import RemoteProtocolError as RemoteProtocolError
    from cans.errors import RunError as RunError
    from cans.errors import StoreError as StoreError
    from cans.errors import Unreachable as Unreachable
    from cans.learning import Policy as Policy
    from cans.learning.constraints import Constraints as Constraints
    from cans.live.device.device import Device as Device
    from cans.live.device.device import Result as Result
    from cans.live.device.reporting.report import Report as Report
    from cans.live.server.embedded import Server as Server
    from cans.live.wire.accuracy import AccuracyBudget as AccuracyBudget
    from cans.live.wire.tls import ClientTls as ClientTls
    from cans.live.wire.tls import ServerTls as ServerTls
    from cans.models.points.table import PartitionTable as PartitionTable
    from cans.program.session import InferenceSession as InferenceSession
    from cans.simulation.run import Simulation as Simulation
    from cans.simulation.run import simulate as simulate
    from cans.simulation.worlds.world import World as World

# Public name -> where it lives. Imported on first use, so that a device never loads the simulator.
_PUBLIC = {
    "AccuracyBudget": "cans.live.wire.accuracy",
    "Busy": "cans.errors",
    "CansError": "cans.errors",
    "ClientTls": "cans.live.wire.tls",
    "Constraints": "cans.learning.constraints",
    "DeadlineExceeded": "cans.errors",
    "Device": "cans.live.device.device",
    "InferenceSession": "cans.program.session",
    "InputError": "cans.errors",
    "LocalProtocolError": "cans.errors",
    "ModelError": "cans.errors",
    "PartitionTable": "cans.models.points.table",
    "Policy": "cans.learning",
    "ProtocolError": "cans.errors",
    "Refused": "cans.errors",
    "RemoteProtocolError": "cans.errors",
    "Report": "cans.live.device.reporting.report",
    "Result": "cans.live.device.device",
    "RunError": "cans.errors",
    "Server": "cans.live.server.embedded",
    "ServerTls": "cans.live.wire.tls",
    "Simulation": "cans.simulation.run",
    "StoreError": "cans.errors",
    "Unreachable": "cans.errors",
    "World": "cans.simulation.worlds.world",
    "simulate": "cans.simulation.run",
}

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cans' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
