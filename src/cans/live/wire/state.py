"""What a device remembers, as bytes: its name, its sequence numbers, what it has not yet sent.

Magic, length, checksum, then a `DeviceState` message. Pure; `statefile` puts it on a disk.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from cans.errors import RemoteProtocolError
from cans.learning import DeviceIdentity, PoolKey, SufficientStatistics
from cans.learning.device.part import PartRecord
from cans.live.wire import learned
from cans.live.wire.frame import field_bytes
from cans.live.wire.proto import edge

_MAGIC = b"CANSv1\n"
_HEAD = len(_MAGIC) + 8


@dataclass(frozen=True)
class RefusedUploads:
    """What the server kept out of one pool: counted there, and not forgotten here."""

    key: PoolKey
    statistics: SufficientStatistics
    uploads: int
    reason: str  # of the last one

    def and_one(self, statistics: SufficientStatistics, reason: str) -> RefusedUploads:
        return RefusedUploads(self.key, self.statistics + statistics, self.uploads + 1, reason)


@dataclass(frozen=True)
class DeviceState:
    """Everything a killed agent needs to go on as if nothing had happened."""

    identity: DeviceIdentity
    welcome: bytes = b""  # the last one, serialized; empty: never joined
    records: tuple[PartRecord, ...] = ()
    joined: bool = False  # offline experience was made and is in the records
    inferences: int = 0
    observations: int = 0
    former: tuple[PartRecord, ...] = field(default=())  # of terms the server has left behind
    refused: tuple[RefusedUploads, ...] = ()


def written(state: DeviceState) -> bytes:
    message = edge.DeviceState(
        identity=learned.identity_out(state.identity),
        records=[learned.record_out(each) for each in state.records],
        joined=state.joined,
        inferences=state.inferences,
        observations=state.observations,
        former=[learned.record_out(each) for each in state.former],
        refused=map(_refused_out, state.refused),
    )
    body: bytes = message.SerializeToString()
    if state.welcome:  # as it is
        body += field_bytes(edge.DeviceState.WELCOME_FIELD_NUMBER, state.welcome)
    return sealed(body)


def read(data: bytes) -> DeviceState:
    """The state that `written` wrote; anything else raises `RemoteProtocolError`."""
    message: Any = learned.parse(edge.DeviceState, unsealed(data))
    return DeviceState(
        learned.identity_in(message.identity),
        message.welcome.SerializeToString() if message.HasField("welcome") else b"",
        tuple(map(learned.record_in, message.records)),
        message.joined,
        message.inferences,
        message.observations,
        tuple(map(learned.record_in, message.former)),
        tuple(map(_refused_in, message.refused)),
    )


def sealed(body: bytes) -> bytes:
    """With its length and checksum in front."""
    head = len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little")
    return _MAGIC + head + body


def unsealed(data: bytes) -> bytes:
    """What was `sealed`; raises `RemoteProtocolError` if it is not all of it."""
    body = data[_HEAD:]
    size = int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 4], "little")
    checksum = int.from_bytes(data[len(_MAGIC) + 4 : _HEAD], "little")
    if data[: len(_MAGIC)] != _MAGIC or len(body) != size or zlib.crc32(body) != checksum:
        raise RemoteProtocolError("not a whole state file of this version")
    return body


def _refused_out(refused: RefusedUploads) -> Any:
    return edge.RefusedUploads(
        key=learned.key_out(refused.key),
        statistics=learned.statistics_out(refused.statistics),
        uploads=refused.uploads,
        reason=refused.reason,
    )


def _refused_in(message: Any) -> RefusedUploads:
    statistics = learned.statistics_in(message.statistics)
    return RefusedUploads(learned.key_in(message.key), statistics, message.uploads, message.reason)
