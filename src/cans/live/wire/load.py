"""How busy a server is, as it travels, and the question for it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import inf
from typing import Any

from cans.errors import RemoteProtocolError
from cans.learning.congestion import Load
from cans.live.wire.learned import clock_time, duration_ms, name, parse
from cans.live.wire.proto import edge

_log = logging.getLogger(__name__)
LARGEST = 2**32 - 1  # of a field
MOST_WORKERS = 1 << 20
LONGEST_WAIT_MS = 3_600_000.0
LARGEST_POINT = 1 << 16


def load_out(load: Load | None) -> Any:
    """The message of a load; None: it is not told."""
    if load is None or load.workers == inf:
        return None
    return edge.Load(
        wait=_whole(100.0 * load.wait_ms),
        utilisation=_whole(1e3 * load.utilisation),
        recent=_whole(1e3 * load.recent),
        arrivals=_whole(10.0 * load.arrivals),
        joined=_whole(load.joined),
        inside=_whole(load.inside),
        workers=_whole(load.workers),
    )


def load_in(message: Any) -> Load | None:
    """The load that came with a message; None: it told none, or one that cannot be, which must not
    cost a device the answer that it came with."""
    if not message.HasField("load"):
        return None
    told = message.load
    wait_ms = told.wait / 100.0
    possible = 1 <= told.workers <= MOST_WORKERS and told.joined >= 1
    if wait_ms > LONGEST_WAIT_MS or max(told.utilisation, told.recent) > 1000 or not possible:
        _log.warning("load not used", extra={"reason": "no server is so busy"})
        return None
    return Load(
        wait_ms, told.utilisation / 1e3, told.arrivals / 10.0, told.joined, told.inside,
        float(told.workers), told.recent / 1e3,
    )  # fmt: skip


def _whole(value: float) -> int:
    whole = round(value)
    return whole if 0 <= whole <= LARGEST else min(max(whole, 0), LARGEST)


@dataclass(frozen=True)
class QuoteRequest:
    """How long would a request wait that came now? And keep a place for it."""

    device: str
    model: str  # digest
    point: int = 0  # what it is likely to send
    codec: str = "float32"
    hold_ms: float = 0.0  # how long to keep the place; of work: for how long nobody sent any
    withdrawn: bool = False  # it will send nothing after all
    work: bool = False  # may real work be sent, to see how quick the server is?

    def to_bytes(self) -> bytes:
        data: bytes = edge.QuoteRequest(
            device=self.device, model=self.model, point=self.point, codec=self.codec,
            hold_ms=self.hold_ms, withdrawn=self.withdrawn, work=self.work,
        ).SerializeToString()  # fmt: skip
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> QuoteRequest:
        message = parse(edge.QuoteRequest, data)
        if message.point > LARGEST_POINT:
            raise RemoteProtocolError(f"point {message.point} has no back-end")
        return cls(
            name(message.device, "device"),
            name(message.model, "model"),
            message.point,
            name(message.codec, "codec"),
            duration_ms(message.hold_ms, "time to hold a place"),
            message.withdrawn,
            message.work,
        )


@dataclass(frozen=True)
class QuoteReply:
    """The load of this moment, and whether work that was asked for may be sent."""

    load: Load | None
    time: float
    granted: bool = False

    def to_bytes(self) -> bytes:
        data: bytes = edge.QuoteReply(
            load=load_out(self.load), time=self.time, granted=self.granted
        ).SerializeToString()
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> QuoteReply:
        message = parse(edge.QuoteReply, data)
        told = clock_time(message.time, "time of the server")
        return cls(load_in(message), told, message.granted)
