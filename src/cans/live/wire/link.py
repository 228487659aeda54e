"""A device's connection to one server: calls out, values back, every foreign error translated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Generic, TypeVar

import grpc

from cans.errors import (
    InputError,
    Unreachable,
)
from cans.learning.congestion import Load
from cans.live.wire.account import StatusReply, StatusRequest
from cans.live.wire.inference import WHOLE, InferReply, InferRequest
from cans.live.wire.load import QuoteReply, QuoteRequest
from cans.live.wire.messages import (
    JoinRequest,
    PoolNews,
    ProbeReply,
    ProbeRequest,
    SyncReply,
    SyncRequest,
    WatchRequest,
    Welcome,
)
from cans.live.wire.model_files import FetchRequest, ModelChunk, ModelPiece, ModelReceipt
from cans.live.wire.status import translated
from cans.live.wire.tls import ClientTls

Message = TypeVar("Message")
Meter = Callable[[int], None]
# A link that went away without a word is found in seconds, not in minutes, by listeners too.
# A ping costs the server a tenth of a request: a device that asks more often than this sends none.
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
)
QUOTE_SECONDS = 1.0  # an older answer is of no use


class Pending(Generic[Message]):
    """A call on its way."""

    def __init__(self, call: Any, read: Callable[[bytes], Message]) -> None:
        self._call = call
        self._read = read

    def result(self, seconds: float | None = None) -> Message:
        """The answer; raises `TimeoutError` if it has not come by then (the call goes on)."""
        try:
            return self._read(self._call.result(timeout=seconds))
        except grpc.FutureTimeoutError:
            raise TimeoutError from None
        except grpc.FutureCancelledError:
            raise Unreachable("the call was given up") from None
        except grpc.RpcError as error:
            raise translated(error) from None

    def when_done(self, function: Callable[[], None]) -> None:
        self._call.add_done_callback(lambda _: function())

    def answered(self) -> bool:
        """Whether an answer has come, and no error."""
        return bool(self._call.done()) and self._call.code() is grpc.StatusCode.OK

    def cancel(self) -> None:
        self._call.cancel()


class Link:
    """All methods may be called from any thread. Nothing connects before the first call."""

    def __init__(
        self,
        server: str,
        *,
        tls: ClientTls | None = None,
        token: str | None = None,
        largest_message: int = 64 << 20,
        meter: Meter = lambda _: None,
    ) -> None:
        """`meter` is told the bytes of every message, either way."""
        self.server = server
        self._meter = meter
        self._tls = tls
        self._options = [
            ("grpc.max_receive_message_length", largest_message),
            ("grpc.max_send_message_length", largest_message),
            # The breaker decides when to try again; the channel must not lag behind it.
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.min_reconnect_backoff_ms", 1_000),  # how long one attempt to connect may take
            ("grpc.max_reconnect_backoff_ms", 1_000),
            *KEEPALIVE,
            ("grpc.enable_retries", 0),
            # Every device has a connection of its own, also beside others in one process.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if ":" not in server:
            raise InputError(f"a server is HOST:PORT, not {server!r}")
        self._metadata = (("authorization", f"Bearer {token}"),) if token else None
        self._retired: grpc.Channel | None = None
        self._closed = False
        self.renewals = 0  # how many connections were left behind
        self._open()

    def _open(self) -> None:
        if self._tls is None:
            self._channel = grpc.insecure_channel(self.server, self._options)
        else:
            credentials = self._tls.credentials()
            self._channel = grpc.secure_channel(self.server, credentials, self._options)
        path = "/cans.v1.Edge/"
        self._join = self._channel.unary_unary(path + "Join")
        self._infer = self._channel.unary_unary(path + "Infer")
        self._infer_large = self._channel.stream_unary(path + "InferLarge")
        self._sync = self._channel.unary_unary(path + "Sync")
        self._probe = self._channel.unary_unary(path + "Probe")
        self._quote = self._channel.unary_unary(path + "Quote")
        self._watch = self._channel.unary_stream(path + "Watch")
        self._fetch = self._channel.unary_stream(path + "FetchModel")
        self._send_model = self._channel.unary_unary(path + "SendModel")
        self._status = self._channel.unary_unary(path + "Status")

    def renew(self) -> None:
        """Use a new connection from now on: the present one may be dead without a word. Replies
        that are still to come on it are given until the next renewal."""
        if self._closed:
            return
        if self._retired is not None:
            self._retired.close()
        self._retired = self._channel
        self.renewals += 1
        self._open()

    def join(self, request: JoinRequest, seconds: float) -> Welcome:
        """Wait for a Welcome, at most so long (also for the connection)."""
        data = request.to_bytes()
        return self._start(self._join, data, seconds, Welcome.from_bytes, wait=True).result()

    def infer(self, request: InferRequest, seconds: float) -> Pending[InferReply]:
        """Ask for a back-end; when the time is up the call is withdrawn, and a server that has not
        begun with it will not."""
        how = {"timeout": seconds, "metadata": self._metadata}
        self._meter(request.nbytes)
        read = self._metered(InferReply.from_bytes)
        if request.nbytes <= WHOLE:
            return Pending(self._infer.future(request.to_bytes(), **how), read)
        return Pending(self._infer_large.future(request.pieces(), **how), read)

    def sync(self, request: SyncRequest, seconds: float) -> Pending[SyncReply]:
        return self._start(self._sync, request.to_bytes(), seconds, SyncReply.from_bytes)

    def probe(self, size: int, seconds: float) -> tuple[float, Load | None]:
        """Milliseconds of an exchange of so many bytes, there and back; and how busy the server
        is."""
        data = ProbeRequest(size).to_bytes()
        start = perf_counter()
        reply = self._start(self._probe, data, seconds, ProbeReply.from_bytes).result()
        return (perf_counter() - start) * 1e3, reply.load

    def quote(self, request: QuoteRequest) -> Pending[QuoteReply]:
        return self._start(self._quote, request.to_bytes(), QUOTE_SECONDS, QuoteReply.from_bytes)

    def watch(self, request: WatchRequest) -> Stream[PoolNews]:
        call = self._watch(request.to_bytes(), metadata=self._metadata)
        return Stream(call, self._metered(PoolNews.from_bytes))

    def fetch(self, request: FetchRequest) -> Stream[ModelChunk]:
        call = self._fetch(request.to_bytes(), metadata=self._metadata)
        return Stream(call, self._metered(ModelChunk.from_bytes))

    def send_model(self, piece: ModelPiece, seconds: float) -> ModelReceipt:
        """Give a piece of a model; raises why the server does not take it."""
        data = piece.to_bytes()
        return self._start(self._send_model, data, seconds, ModelReceipt.from_bytes).result()

    def status(self, request: StatusRequest, seconds: float) -> str:
        """What the fleet does, as a JSON document."""
        data = request.to_bytes()
        reply = self._start(self._status, data, seconds, StatusReply.from_bytes)
        return reply.result().document

    def _start(
        self,
        method: Any,
        data: bytes,
        seconds: float,
        read: Callable[[bytes], Message],
        wait: bool = False,
    ) -> Pending[Message]:
        self._meter(len(data))
        call = method.future(
            data, timeout=seconds, metadata=self._metadata, wait_for_ready=wait or None
        )
        return Pending(call, self._metered(read))

    def _metered(self, read: Callable[[bytes], Message]) -> Callable[[bytes], Message]:
        def metered(data: bytes) -> Message:
            self._meter(len(data))
            return read(data)

        return metered

    def close(self) -> None:
        self._closed = True
        self._channel.close()
        if self._retired is not None:
            self._retired.close()


class Stream(Generic[Message]):
    """Messages as they come, until the server or `cancel` ends it."""

    def __init__(self, call: Any, read: Callable[[bytes], Message]) -> None:
        self._call = call
        self._read = read

    def __iter__(self) -> Iterator[Message]:
        try:
            for data in self._call:
                yield self._read(data)
        except grpc.RpcError as error:
            raise translated(error) from None

    def cancel(self) -> None:
        self._call.cancel()


def parse_servers(text: str) -> tuple[str, ...]:
    """`a:7070,b:7070` -> both."""
    servers = tuple(each.strip() for each in text.split(",") if each.strip())
    if not servers or not all(_is_address(each) for each in servers):
        raise InputError(f"--server must be HOST:PORT, several with commas between, not {text!r}")
    return servers


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536
