"""`cans.v1.Edge`: what a server answers, method by method. Bytes in, bytes out; no sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from cans.errors import RemoteProtocolError, StoreError
from cans.learning import DeviceIdentity, Download, PoolKey
from cans.learning.part import pool_key
from cans.live.clock import Clock
from cans.live.sending import chunks
from cans.live.server.backends import BackEnds
from cans.live.server.catalogue import Catalogue
from cans.live.server.pools import Pools, Version
from cans.live.server.tokens import may_speak_for
from cans.live.split import SplitModel
from cans.live.wire import frame, messages
from cans.live.wire.outputs import outputs_out
from cans.live.wire.proto import edge
from cans.live.wire.terms import cutting_out, table_out, terms_out

_log = logging.getLogger(__name__)
MOST_KNOWN = 64  # pools that one device may ask about


class Caller(NamedTuple):
    """Who calls."""

    token_device: str  # "*" where no tokens are asked for


class EdgeService:
    def __init__(
        self,
        name: str,
        catalogue: Catalogue,
        pools: Pools,
        back_ends: BackEnds,
        clock: Clock,
        largest_message: int,
    ) -> None:
        self.name = name
        self._catalogue = catalogue
        self._pools = pools
        self._back_ends = back_ends
        self._clock = clock
        self._largest = largest_message

    # --- Join ---

    async def join(self, data: bytes, caller: Caller) -> bytes:
        request = messages.parse(edge.JoinRequest, data)
        identity = messages.identity_in(request.identity)
        may_speak_for(caller.token_device, identity.device)
        model = self._catalogue.find(request.model)
        merged = await self._merge(request.uploads, caller)
        current = await self._load_if_it_can(self._keys(model, identity))
        reply = edge.Welcome(
            server=self.name,
            time=self._clock.now(),
            table=table_out(model.table),
            cutting=cutting_out(model.cutting),
            pools=merged + [messages.download_out(each) for each in current],
            largest_message=self._largest,
            model_name=model.name,
            model_file_sha256=model.files[0].sha256 if model.files else "",
        )
        terms_out(self._catalogue.terms, reply)
        _log.info("device joined", extra={**identity._asdict(), "model": model.name})
        return messages.serialized(reply)

    async def _load_if_it_can(self, keys: list[PoolKey]) -> list[Download]:
        """A device may join a server whose store is away, and use what it knows itself."""
        try:
            return await self._pools.load(keys)
        except StoreError as error:
            _log.error("pools not read", extra={"reason": str(error)})
            return []

    def _keys(self, model: SplitModel, identity: DeviceIdentity) -> list[PoolKey]:
        policy = self._catalogue.terms.policy
        shared = [part for part in policy.parts if part.shared]
        return [pool_key(part, model.table, policy, identity) for part in shared]

    # --- Infer ---

    async def infer(self, data: bytes, caller: Caller) -> bytes:
        header, tensors = frame.parted(data)
        request = messages.parse(edge.InferHeader, bytes(header))
        return await self._infer(request, tensors, caller)

    async def infer_large(self, pieces: AsyncIterator[bytes], caller: Caller) -> bytes:
        """The same with the tensors in pieces, each copied to its place while others travel."""
        first = messages.parse(edge.InferPiece, await anext(pieces, b""))
        request = first.header
        self._back_ends.checked(request)
        total = sum(request.sizes)
        if total > self._largest:
            raise RemoteProtocolError(f"{total} bytes announced; at most {self._largest}")
        whole = bytearray(total)
        view, at = memoryview(whole), 0
        async for piece in pieces:
            data = frame.piece_data(piece)
            if at + data.nbytes > total:
                raise RemoteProtocolError("more bytes than announced")
            view[at : at + data.nbytes] = data
            at += data.nbytes
        if at != total:
            raise RemoteProtocolError(f"{at} bytes came, {total} were announced")
        ends = [sum(request.sizes[: i + 1]) for i in range(len(request.sizes))]
        starts = [0, *ends[:-1]]
        tensors = [view[a:b] for a, b in zip(starts, ends, strict=True)]
        return await self._infer(request, tensors, caller)

    async def _infer(self, request: Any, tensors: Sequence[memoryview], caller: Caller) -> bytes:
        may_speak_for(caller.token_device, request.device)
        model = self._back_ends.checked(request)
        known = _known(request.known)
        patience = request.patience_ms if request.patience_ms > 0 else None
        merging = asyncio.ensure_future(self._merge_if_it_can(request.uploads, caller))
        try:
            answer = await self._back_ends.run(model, request, tensors, patience)
        finally:
            merged = await merging
        metas, buffers = outputs_out(answer.outputs)
        header = edge.InferReplyHeader(
            tensors=metas,
            compute_ms=answer.compute_ms,
            queue_ms=answer.queue_ms,
            pools=merged,
            time=self._clock.now(),
            warming=answer.warming,
        )
        if known:
            header.pools.extend(map(messages.download_out, self._pools.newer(known.items())))
        return frame.joined(header.SerializeToString(), buffers)

    async def _merge_if_it_can(self, raw: Sequence[Any], caller: Caller) -> list[Any]:
        """An answer does not wait for a broken store; the device sends its uploads again."""
        try:
            return await self._merge(raw, caller)
        except StoreError as error:
            _log.error("uploads not merged", extra={"reason": str(error)})
            return []

    # --- Sync, Watch ---

    async def sync(self, data: bytes, caller: Caller) -> bytes:
        request = messages.parse(edge.SyncRequest, data)
        pools = await self._merge(request.uploads, caller)
        return messages.serialized(edge.SyncReply(pools=pools, time=self._clock.now()))

    async def _merge(self, raw: Sequence[Any], caller: Caller) -> list[Any]:
        uploads = messages.uploads_in(raw)
        for upload in uploads:
            may_speak_for(caller.token_device, upload.device)
        merged = await self._pools.merge(uploads)
        return [messages.download_out(each.download, each.refused) for each in merged]

    async def probe(self, data: bytes, caller: Caller) -> bytes:
        messages.parse(edge.ProbeRequest, data)
        return messages.serialized(edge.ProbeReply(time=self._clock.now()))

    async def watch(self, data: bytes, caller: Caller) -> AsyncIterator[bytes]:
        request = messages.parse(edge.WatchRequest, data)
        may_speak_for(caller.token_device, messages.name(request.device, "device"))
        async for news in self._pools.watch(_known(request.known)):
            pools = [messages.download_out(each) for each in news]
            yield messages.serialized(edge.PoolNews(pools=pools, time=self._clock.now()))

    # --- FetchModel ---

    async def fetch_model(self, data: bytes, caller: Caller) -> AsyncIterator[bytes]:
        request = messages.parse(edge.FetchModelRequest, data)
        model = self._catalogue.find(request.model)
        async for chunk in chunks(model, request.file, request.offset):
            yield messages.serialized(chunk)


def _known(pools: Sequence[Any]) -> dict[PoolKey, Version]:
    if len(pools) > MOST_KNOWN:
        raise RemoteProtocolError(f"{len(pools)} pools; at most {MOST_KNOWN}")
    return {messages.key_in(each.key): (each.epoch, each.round) for each in pools}
