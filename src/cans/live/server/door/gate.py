"""Between gRPC and the services: who calls, what they say, and which status an error becomes.

Nothing of a request is read before its caller is known, and no more than there is room for.
Messages are taken from gRPC as raw bytes and become values here, so that garbage is answered with
INVALID_ARGUMENT like any other mistake of a caller, and tensors are not copied by protobuf. Every
method is served as a stream of requests, because gRPC reads a single request before it asks us.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol, TypeVar

import grpc

from cans.errors import Busy, CansError, DeadlineExceeded, RemoteProtocolError
from cans.live.clock import Clock
from cans.live.server.door.connections import Connections, address_of
from cans.live.server.door.identity import ANY, Caller, TokenFile, bearer, certified_names
from cans.live.server.door.quotas import Quotas
from cans.live.server.door.room import Place, Room
from cans.live.server.fleet.happenings import Happenings, Rejected
from cans.live.wire.status import status_of

Request = TypeVar("Request")

_log = logging.getLogger(__name__)
_LONGEST_MESSAGE = 1000  # of an error, in characters
_PENALTY_SECONDS = 1.0
READ_SECONDS = 20.0  # for one message to arrive
GATHER_SECONDS = 60.0  # for all pieces of one request


class Message(Protocol):
    """An answer."""

    def to_bytes(self) -> bytes: ...


class Gate:
    """Lets callers in, reads what they say, and puts errors into words."""

    def __init__(
        self,
        tokens: TokenFile | None,
        mutual_tls: bool,
        room: Room,
        connections: Connections,
        quotas: Quotas,
        largest_single: int,
        happenings: Happenings,
        clock: Clock,
    ) -> None:
        self._tokens = tokens
        self._mutual_tls = mutual_tls
        self._room = room
        self._connections = connections
        self._quotas = quotas
        self._happenings = happenings
        self._clock = clock
        self._single = largest_single  # bytes of one message
        self.calls: dict[tuple[str, str], int] = {}  # (method, status) -> how many

    def caller(self, context: Any) -> Caller:
        """Who calls; raises `Refused` for whoever may not."""
        device, weight = ANY, 1.0
        if self._tokens is not None:
            device, weight = self._tokens.entry(bearer(context.invocation_metadata()))
        names = certified_names(context) if self._mutual_tls else frozenset[str]()
        return Caller(context.peer(), device, weight, names, self._connections.known)

    def count(self, method: str, status: str) -> None:
        self.calls[method, status] = self.calls.get((method, status), 0) + 1

    async def _slow_down(self, peer: str, caller: Caller | None) -> None:
        """Whoever is refused again and again waits for it: errors must not be cheap to cause."""
        who = peer if caller is None else caller.account
        address = address_of(who)  # of one who is no device by token: all its connections together
        who = who if address is None else address[0]
        if self._quotas.refused_too_often(who, asyncio.get_running_loop().time()):
            await asyncio.sleep(_PENALTY_SECONDS)

    async def refuse(
        self, context: Any, method: str, error: Exception, caller: Caller | None = None
    ) -> NoReturn:
        if isinstance(error, CansError):
            code, message = status_of(error), str(error)[:_LONGEST_MESSAGE]
        else:
            _log.exception("a request failed by a bug of the server", exc_info=error)
            code, message = grpc.StatusCode.INTERNAL, "internal error; see the server's log"
        _forget_frames(error)
        self.count(method, code.name)
        who = "" if caller is None or caller.device == ANY else caller.device
        self._happenings.add(Rejected(self._clock.now(), method, code.name, message, who))
        if not isinstance(error, Busy):  # whose device is to answer by itself, and at once
            await self._slow_down(context.peer(), caller)
        if code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            _log.warning(
                "request refused",
                extra={"method": method, "code": code.name, "reason": message,
                       "peer": context.peer()},
            )  # fmt: skip
        await context.abort(code, message)
        raise AssertionError("abort always raises")

    @asynccontextmanager
    async def place(
        self, context: Any, known: bool
    ) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """Room for a call of another library's service; gives what reads its first message.
        `known`: only for those who may call."""
        if known:
            caller = self.caller(context)
            caller.speak()
            account = caller.account
        else:
            address = address_of(context.peer())
            account = f"unknown {address[0] if address else context.peer()}"
            self._connections.known(context.peer(), account)
        try:
            place = await self._room.enter(account, self._single)
        except CansError as error:
            await self.refuse(context, "standard", error)
        try:
            yield lambda: _next_message(context)
        finally:
            place.leave()

    # --- the shapes of a call ---

    def answers(
        self,
        method: str,
        read: Callable[[bytes], Request],
        function: Callable[[Request, Caller], Awaitable[Message]],
    ) -> Any:
        """One answer to one request."""

        async def handle(_: object, context: Any) -> bytes:
            place: Place | None = None
            caller: Caller | None = None
            request: Request | None = None
            data = b""
            try:
                caller = self.caller(context)
                place = await self._room.enter(caller.account, self._single)
                data = await _next_message(context)
                place.shrink(len(data))
                request, data = read(data), b""
                reply = (await function(request, caller)).to_bytes()
            except Exception as error:
                request, data = None, b""
                await self.refuse(context, method, error, caller)
            finally:
                if place is not None:
                    place.leave()
            self.count(method, "OK")
            return reply

        return grpc.stream_unary_rpc_method_handler(handle)

    def gathers(self, method: str, function: Callable[[Pieces, Caller], Awaitable[Message]]) -> Any:
        """One answer to a request in pieces."""

        async def handle(_: object, context: Any) -> bytes:
            place: Place | None = None
            caller: Caller | None = None
            try:
                caller = self.caller(context)
                place = await self._room.enter(caller.account, self._single)
                reply = (await function(Pieces(context, place), caller)).to_bytes()
            except Exception as error:
                await self.refuse(context, method, error, caller)
            finally:
                if place is not None:
                    place.leave()
            self.count(method, "OK")
            return reply

        return grpc.stream_unary_rpc_method_handler(handle)

    def streams(
        self,
        method: str,
        read: Callable[[bytes], Request],
        function: Callable[[Request, Caller], AsyncIterator[Message]],
    ) -> Any:
        """A stream of answers; the caller must stay welcome all along."""

        async def handle(_: object, context: Any) -> AsyncIterator[bytes]:
            place: Place | None = None
            caller: Caller | None = None
            try:
                caller = self.caller(context)
                place = await self._room.enter(caller.account, self._single)
                request = read(await _next_message(context))
                place.leave()  # what is open for long is counted by quotas
                place = None
                async for reply in function(request, caller):
                    yield reply.to_bytes()
                    self.caller(context)
            except Exception as error:
                await self.refuse(context, method, error, caller)
            finally:
                if place is not None:
                    place.leave()
            self.count(method, "OK")

        return grpc.stream_stream_rpc_method_handler(handle)


class Pieces:
    """The messages of one request as they come, within bounds of time and room."""

    def __init__(self, context: Any, place: Place) -> None:
        self._context = context
        self._place = place
        self._until = asyncio.get_running_loop().time() + GATHER_SECONDS

    async def make_room(self, nbytes: int) -> None:
        """Before so many bytes are allocated for them."""
        await self._place.grow(nbytes)

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        left = self._until - asyncio.get_running_loop().time()
        data = await _message_or_end(self._context, min(left, READ_SECONDS))
        if data is None:
            raise StopAsyncIteration
        return data


def _forget_frames(error: BaseException) -> None:
    """Those that an error went through hold the message that was refused, and the error holds them:
    a circle that is collected some time, many messages later."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__, seen = None, seen.__context__


async def _next_message(context: Any) -> bytes:
    data = await _message_or_end(context, READ_SECONDS)
    if data is None:
        raise RemoteProtocolError("a call without a request")
    return data


async def _message_or_end(context: Any, seconds: float) -> bytes | None:
    try:
        async with asyncio.timeout(seconds):
            data = await context.read()
    except TimeoutError:
        raise DeadlineExceeded("the request did not arrive in time") from None
    return None if data is grpc.aio.EOF else data
