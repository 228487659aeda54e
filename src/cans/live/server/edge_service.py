"""`cans.v1.Edge`: what a server answers, method by method. Values in, values out; no sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence

from cans.errors import Refused, RemoteProtocolError, StoreError
from cans.learning import DeviceIdentity, Download, PoolKey, Upload
from cans.learning.device.part import pool_key
from cans.learning.grouping import AUTO, Family
from cans.live.clock import Clock
from cans.live.sending import chunks
from cans.live.server.accepting.accepted import AcceptedModels
from cans.live.server.backends import BackEnds
from cans.live.server.catalogue import Catalogue
from cans.live.server.crowd.load import ServerLoad
from cans.live.server.door.gate import Pieces
from cans.live.server.door.identity import Caller
from cans.live.server.door.quotas import Quotas
from cans.live.server.fleet.accuracy import FleetAccuracy
from cans.live.server.fleet.happenings import Accounted, Answered, Joined, Watching
from cans.live.server.fleet.recorder import Recorder
from cans.live.server.fleet.status import status_document
from cans.live.server.own_runs import OwnRuns
from cans.live.server.pools import Pools
from cans.live.split import SplitModel
from cans.live.wire.account import Account, StatusReply, StatusRequest
from cans.live.wire.inference import Assembly, InferHeader, InferReply, InferRequest, first_piece
from cans.live.wire.load import QuoteReply, QuoteRequest
from cans.live.wire.messages import (
    JoinRequest,
    PoolNews,
    PoolUpdate,
    ProbeReply,
    ProbeRequest,
    SyncReply,
    SyncRequest,
    WatchRequest,
    Welcome,
)
from cans.live.wire.model_files import FetchRequest, ModelChunk, ModelPiece, ModelReceipt

_log = logging.getLogger(__name__)
MOST_SCOPES = 4  # of one part that a device may watch at a time: its own, and while it moves


class EdgeService:
    def __init__(
        self,
        name: str,
        catalogue: Catalogue,
        pools: Pools,
        back_ends: BackEnds,
        quotas: Quotas,
        clock: Clock,
        largest_message: int,
        recorder: Recorder,
        load: ServerLoad,
        own_runs: OwnRuns,
        accepted: AcceptedModels | None = None,
    ) -> None:
        self.name = name
        self._catalogue = catalogue
        self._pools = pools
        self._back_ends = back_ends
        self._quotas = quotas
        self._clock = clock
        self._largest = largest_message
        self._recorder = recorder
        self._happenings = recorder.happenings
        self._load = load
        self._own_runs = own_runs
        self._accepted = accepted  # models that devices give; None: none are taken
        self._accuracy = FleetAccuracy()
        self._inside: dict[str, int] = {}  # requests of each device, if there are any

    # --- Join ---

    async def join(self, request: JoinRequest, caller: Caller) -> Welcome:
        identity = request.identity
        caller.may_speak_for(identity.device)
        model = self._catalogue.find(request.model)
        self._used(model)
        self._own_runs.begin(model)
        group = await self._group_if_it_can(model, request)
        learning = identity._replace(type=group or identity.type)
        keys = self._keys(model, learning)
        self._pools.claims.joined(identity.device, [*self._keys(model, identity), *keys])
        merged = await self._merge(request.uploads, caller)
        current = await self._load_if_it_can(keys)
        self._accuracy.joined(identity.device, model)
        self._load.heard(identity.device)
        self._happenings.add(Joined(self._clock.now(), learning, model.digest))
        _log.info("device joined", extra={**identity._asdict(), "model": model.name})
        return Welcome(
            self.name,
            self._clock.now(),
            self._catalogue.terms,
            model.table,
            model.cutting,
            (*merged, *map(PoolUpdate, current)),
            self._largest,
            model.name,
            model.files[0].sha256 if model.files else "",
            group,
            self._accuracy.known(model),
            self._load.told(identity.device, model.digest),
            self._pools.books_all(model),
        )

    async def _group_if_it_can(self, model: SplitModel, request: JoinRequest) -> str:
        """The group of a joining device; empty if devices of this policy learn by their types."""
        if not self._catalogue.terms.policy.grouped:
            return ""
        shape = ";".join("x".join(map(str, each.shape)) for each in model.inputs)
        label = "" if request.identity.type == AUTO else request.identity.type
        family = Family(model.digest, shape, request.provider, label)
        try:
            return await self._pools.group(
                family, request.identity, request.whole_ms, request.moved
            )
        except StoreError as error:
            _log.error("no group found", extra={"reason": str(error)})
            return ""

    async def _load_if_it_can(self, keys: list[PoolKey]) -> list[Download]:
        """A device may join a server whose store is away, and use what it knows itself."""
        try:
            return await self._pools.load(keys)
        except StoreError as error:
            _log.error("pools not read", extra={"reason": str(error)})
            return []

    def _keys(self, model: SplitModel, identity: DeviceIdentity) -> list[PoolKey]:
        policy, shared = self._catalogue.terms.policy, self._catalogue.shared_parts
        return [pool_key(part, model.table, policy, identity) for part in shared]

    # --- Infer ---

    async def infer(self, request: InferRequest, caller: Caller) -> InferReply:
        caller.may_speak_for(request.header.device)
        model = self._back_ends.checked(request.header)
        return await self._infer(model, request.header, request.tensors, caller)

    async def infer_large(self, pieces: Pieces, caller: Caller) -> InferReply:
        """The same with the tensors in pieces, each copied to its place while others travel."""
        header = first_piece(await anext(pieces, b""))
        caller.may_speak_for(header.device)
        model = self._back_ends.checked(header)
        total = sum(header.sizes)
        if total > self._largest:
            raise RemoteProtocolError(f"{total} bytes announced; at most {self._largest}")
        await pieces.make_room(total)
        assembly = Assembly(header.sizes)
        async for piece in pieces:
            assembly.add(piece)
        return await self._infer(model, header, assembly.tensors(), caller)

    async def _infer(
        self, model: SplitModel, header: InferHeader, tensors: Sequence[memoryview], caller: Caller
    ) -> InferReply:
        self._used(model)
        self._load.came(header.device, header.model, caller)
        self._account(header.device, header.account)  # of earlier inferences: before this one
        merging = asyncio.ensure_future(self._merge_if_it_can(header.uploads, caller))
        ahead = self._inside.get(header.device, 0)
        self._inside[header.device] = ahead + 1
        try:
            answer = await self._back_ends.run(model, header, tensors, caller.weight)
        finally:
            self._leave(header.device)
            merged = await merging
        if not answer.warming:
            # A wait that is told is not learned, nor one behind the device's own requests.
            waited_ms = max(answer.queue_ms - ahead * answer.compute_ms, 0.0)
            server_ms = answer.compute_ms + (0.0 if self._load.tells else waited_ms)
            self._pools.timed(model, header.point, header.codec, server_ms)
        self._pools.answered(header.device)
        now = self._clock.now()
        self._happenings.add(
            Answered(now, header.device, header.model, header.point, header.codec,
                     answer.queue_ms, answer.compute_ms, header.trace)
        )  # fmt: skip
        newer = (
            self._pools.newer(header.known.items())
            if header.known
            else self._pools.riding(header.device)
        )
        return InferReply(
            answer.outputs,
            answer.compute_ms,
            answer.queue_ms,
            now,
            (*merged, *map(PoolUpdate, newer)),
            answer.warming,
            self._load.told(header.device, header.model),
        )

    def _leave(self, device: str) -> None:
        left = self._inside.pop(device) - 1
        if left:
            self._inside[device] = left

    async def _merge_if_it_can(
        self, uploads: Sequence[Upload], caller: Caller
    ) -> tuple[PoolUpdate, ...]:
        """An answer does not wait for a broken store; the device sends its uploads again."""
        try:
            return await self._merge(uploads, caller)
        except StoreError as error:
            _log.error("uploads not merged", extra={"reason": str(error)})
            return ()

    # --- Sync, Probe, Quote, Watch ---

    async def sync(self, request: SyncRequest, caller: Caller) -> SyncReply:
        if request.account is not None:
            caller.may_speak_for(request.device)
            self._load.heard(request.device)
            self._account(request.device, request.account)
        return SyncReply(await self._merge(request.uploads, caller), self._clock.now())

    def _account(self, device: str, account: Account | None) -> None:
        if account is not None:
            self._accuracy.told(device, account.compared)
            self._happenings.add(Accounted(self._clock.now(), device, account))

    async def _merge(self, uploads: Sequence[Upload], caller: Caller) -> tuple[PoolUpdate, ...]:
        now = self._clock.now()
        for upload in uploads:
            caller.may_speak_for(upload.device)
            self._quotas.sender(upload.device, (upload.key, upload.incarnation), now)
        merged = await self._pools.merge(uploads)
        return tuple(PoolUpdate(each.download, each.refused) for each in merged)

    async def probe(self, request: ProbeRequest, caller: Caller) -> ProbeReply:
        caller.speak()
        return ProbeReply(self._clock.now(), self._load.told())

    async def quote(self, request: QuoteRequest, caller: Caller) -> QuoteReply:
        caller.may_speak_for(request.device)
        self._catalogue.find(request.model)
        load, granted = self._load.quote(request, caller)
        return QuoteReply(load, self._clock.now(), granted)

    async def watch(self, request: WatchRequest, caller: Caller) -> AsyncIterator[PoolNews]:
        caller.may_speak_for(request.device)
        most = MOST_SCOPES * len(self._catalogue.shared_parts)
        if len(request.known) > most:
            raise RemoteProtocolError(f"{len(request.known)} pools to watch; at most {most}")
        model = ""
        for model in {key.model for key in request.known}:
            self._catalogue.find(model)  # of one that has gone there is no news
        with self._quotas.watching(request.device, self._clock.now()):
            self._happenings.add(Watching(self._clock.now(), request.device, True))
            try:
                async for news in self._pools.watch(request.device, request.known):
                    load = self._load.told(request.device, model)
                    yield PoolNews(_updates(news), self._clock.now(), load)
            finally:
                self._happenings.add(Watching(self._clock.now(), request.device, False))

    # --- Status ---

    async def status(self, request: StatusRequest, caller: Caller) -> StatusReply:
        caller.speak()
        document = await asyncio.to_thread(
            status_document, self._recorder, request.device, request.most
        )
        return StatusReply(json.dumps(document))

    # --- FetchModel ---

    async def fetch_model(self, request: FetchRequest, caller: Caller) -> AsyncIterator[ModelChunk]:
        caller.speak()
        model = self._catalogue.find(request.model)
        with self._quotas.fetching(caller.account, self._clock.now()):
            async for chunk in chunks(model, request.file, request.offset):
                yield chunk

    # --- SendModel ---

    async def send_model(self, piece: ModelPiece, caller: Caller) -> ModelReceipt:
        caller.speak()
        if self._accepted is None:
            raise Refused("this server takes no models from devices", "UNIMPLEMENTED")
        return await self._accepted.take(piece, self._catalogue)

    def _used(self, model: SplitModel) -> None:
        if self._accepted is not None:
            self._accepted.used(model.digest)


def _updates(downloads: Iterable[Download]) -> tuple[PoolUpdate, ...]:
    return tuple(map(PoolUpdate, downloads))
