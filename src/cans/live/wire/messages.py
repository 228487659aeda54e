"""What devices and servers say to each other: frozen values, checked once when they come in.

Each message writes itself with `to_bytes` and is read with `from_bytes`, which raises
`RemoteProtocolError` for bytes that are no such message. Nothing above this folder sees protobuf.
Requests that carry tensors are in `inference`, those for model files in `model_files`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

from cans.errors import RemoteProtocolError
from cans.learning import DeviceIdentity, Download, PartitionTable, PoolKey, Upload
from cans.learning.congestion import Load
from cans.live.split import Cutting
from cans.live.wire import learned, terms
from cans.live.wire.account import Account, account_in, account_out
from cans.live.wire.accuracy import Compared, compared_in, compared_out
from cans.live.wire.learned import clock_time, integer, name, parse
from cans.live.wire.load import load_in, load_out
from cans.live.wire.proto import edge
from cans.live.wire.terms import WIRE, Terms, understood

_log = logging.getLogger(__name__)
MOST_POOLS = 64  # that one message may be about
LONGEST_REASON = 1000  # characters
LARGEST_WELCOME = 8 << 20  # bytes; those of large models have some 200 kB

Version = tuple[int, int]  # of a pool: epoch, round
Known = Mapping[PoolKey, Version]


class PoolUpdate(NamedTuple):
    """A pool on its way to a device, and what became of the upload that it acknowledges."""

    download: Download
    refused: str = ""  # why that upload was kept out of the pool; empty: it is in it


@dataclass(frozen=True)
class JoinRequest:
    """A device says who it is and which model it wants."""

    identity: DeviceIdentity
    model: str = ""  # digest or name; empty: the server's only one
    uploads: tuple[Upload, ...] = ()  # whatever is not yet acknowledged
    whole_ms: float = 0.0  # the whole model on this device, the lower of two runs; 0: not known
    provider: str = ""  # what executes the model on this device
    moved: bool = False  # the device is another machine than its group knows

    def to_bytes(self) -> bytes:
        return to_bytes(
            edge.JoinRequest(
                identity=learned.identity_out(self.identity),
                model=self.model,
                uploads=map(learned.upload_out, self.uploads),
                whole_ms=self.whole_ms,
                provider=self.provider,
                moved=self.moved,
                wire=WIRE,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> JoinRequest:
        message = parse(edge.JoinRequest, data)
        understood(message.wire, "device")
        identity = learned.identity_in(message.identity)
        if not 0.0 <= message.whole_ms < inf:
            raise RemoteProtocolError(f"a whole model in {message.whole_ms} ms")
        return cls(
            identity,
            optional_name(message.model, "model"),
            learned.uploads_in(message.uploads),
            message.whole_ms,
            optional_name(message.provider, "execution provider"),
            message.moved,
        )


@dataclass(frozen=True)
class Welcome:
    """A server's answer to a device that joins: how its fleet learns, and all it has learned."""

    server: str  # which server answers, for logs
    time: float  # seconds on the server's clock
    terms: Terms
    table: PartitionTable
    cutting: Cutting = field(default_factory=Cutting)
    pools: tuple[PoolUpdate, ...] = ()
    largest_message: int = 64 << 20  # bytes
    model_name: str = ""
    model_file_sha256: str = ""  # of the file that FetchModel sends; empty: it sends none
    group: str = ""  # with whom the device learns its front-end; empty: by its type
    compared: tuple[Compared, ...] = ()  # what devices found of lossy choices
    load: Load | None = None  # how busy it is; None: it does not tell
    books_server: bool = False  # it times itself: nobody uploads what explains the server alone

    def to_bytes(self) -> bytes:
        message = edge.Welcome(
            server=self.server,
            time=self.time,
            table=terms.table_out(self.table),
            cutting=terms.cutting_out(self.cutting),
            pools=map(update_out, self.pools),
            largest_message=self.largest_message,
            model_name=self.model_name,
            model_file_sha256=self.model_file_sha256,
            wire=WIRE,
            group=self.group,
            compared=compared_out(self.compared),
            load=load_out(self.load),
            books_server=self.books_server,
        )
        terms.terms_out(self.terms, message)
        return to_bytes(message)

    @classmethod
    def from_bytes(cls, data: bytes) -> Welcome:
        if len(data) > LARGEST_WELCOME:
            raise RemoteProtocolError(f"a welcome of {len(data)} bytes; at most {LARGEST_WELCOME}")
        message = parse(edge.Welcome, data)
        understood(message.wire, "server")
        return cls(
            optional_name(message.server, "server"),
            clock_time(message.time, "time of the server"),
            terms.terms_in(message),
            terms.table_in(message.table),
            terms.cutting_in(message.cutting),
            updates_in(message.pools),
            integer(message.largest_message, "largest message"),
            optional_name(message.model_name, "model"),
            optional_name(message.model_file_sha256, "digest of the model file"),
            optional_name(message.group, "group"),
            compared_in(message.compared),
            load_in(message),
            message.books_server,
        )

    def without_pools(self) -> Welcome:
        """As a device keeps it."""
        return replace(self, pools=(), load=None)


@dataclass(frozen=True)
class SyncRequest:
    """Uploads to merge now, and what the device did lately."""

    uploads: tuple[Upload, ...]
    device: str = ""  # whose account it is
    account: Account | None = None

    def to_bytes(self) -> bytes:
        message = edge.SyncRequest(uploads=map(learned.upload_out, self.uploads))
        if self.account is not None:
            message.device = self.device
            message.account.CopyFrom(account_out(self.account))
        return to_bytes(message)

    @classmethod
    def from_bytes(cls, data: bytes) -> SyncRequest:
        message = parse(edge.SyncRequest, data)
        uploads = learned.uploads_in(message.uploads)
        if not message.HasField("account"):
            return cls(uploads)
        return cls(uploads, name(message.device, "device"), account_in(message.account))


@dataclass(frozen=True)
class SyncReply:
    """The pools after a Sync, one for each upload, in order."""

    pools: tuple[PoolUpdate, ...]
    time: float

    def to_bytes(self) -> bytes:
        return to_bytes(edge.SyncReply(pools=map(update_out, self.pools), time=self.time))

    @classmethod
    def from_bytes(cls, data: bytes) -> SyncReply:
        message = parse(edge.SyncReply, data)
        return cls(updates_in(message.pools), clock_time(message.time, "time of the server"))


@dataclass(frozen=True)
class ProbeRequest:
    """So many bytes, to time how long they take."""

    size: int

    def to_bytes(self) -> bytes:
        return to_bytes(edge.ProbeRequest(padding=bytes(self.size)))

    @classmethod
    def from_bytes(cls, data: bytes) -> ProbeRequest:
        return cls(len(parse(edge.ProbeRequest, data).padding))


@dataclass(frozen=True)
class ProbeReply:
    time: float
    load: Load | None = None

    def to_bytes(self) -> bytes:
        return to_bytes(edge.ProbeReply(time=self.time, load=load_out(self.load)))

    @classmethod
    def from_bytes(cls, data: bytes) -> ProbeReply:
        message = parse(edge.ProbeReply, data)
        return cls(clock_time(message.time, "time of the server"), load_in(message))


@dataclass(frozen=True)
class WatchRequest:
    """A device wants to hear of every change of these pools."""

    device: str
    known: Known

    def to_bytes(self) -> bytes:
        return to_bytes(edge.WatchRequest(device=self.device, known=known_out(self.known)))

    @classmethod
    def from_bytes(cls, data: bytes) -> WatchRequest:
        message = parse(edge.WatchRequest, data)
        return cls(name(message.device, "device"), known_in(message.known))


@dataclass(frozen=True)
class PoolNews:
    """Pools that have changed, and how busy the server is; or that alone."""

    pools: tuple[PoolUpdate, ...]
    time: float
    load: Load | None = None

    def to_bytes(self) -> bytes:
        pools = map(update_out, self.pools)
        return to_bytes(edge.PoolNews(pools=pools, time=self.time, load=load_out(self.load)))

    @classmethod
    def from_bytes(cls, data: bytes) -> PoolNews:
        message = parse(edge.PoolNews, data)
        time = clock_time(message.time, "time of the server")
        return cls(updates_in(message.pools), time, load_in(message))


# --- parts of several messages -------------------------------------------------------------------


def known_out(known: Known) -> list[Any]:
    return [
        edge.KnownPool(key=learned.key_out(key), epoch=epoch, round=round_)
        for key, (epoch, round_) in known.items()
    ]


def known_in(pools: Sequence[Any]) -> dict[PoolKey, Version]:
    if len(pools) > MOST_POOLS:
        raise RemoteProtocolError(f"{len(pools)} pools; at most {MOST_POOLS}")
    return {learned.key_in(each.key): (each.epoch, each.round) for each in pools}


def update_out(update: PoolUpdate) -> Any:
    return learned.download_out(update.download, update.refused)


def updates_in(messages: Sequence[Any]) -> tuple[PoolUpdate, ...]:
    """Pools that can be used; the others must not cost a device the answer they came with."""
    if len(messages) > MOST_POOLS:
        raise RemoteProtocolError(f"{len(messages)} pools in one message; at most {MOST_POOLS}")
    found = []
    for message in messages:
        try:
            download = learned.download_in(message)
        except RemoteProtocolError as error:
            _log.warning("pool not used", extra={"reason": str(error)})
            continue
        found.append(PoolUpdate(download, message.refused[:LONGEST_REASON]))
    return tuple(found)


def optional_name(text: str, what: str) -> str:
    """An identifier that may be left out."""
    return name(text, what) if text else ""


def to_bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
