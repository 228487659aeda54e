"""The edge server: everything put together, started, and stopped without losing anything."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from cans.errors import InputError, RunError
from cans.live.clock import Clock
from cans.live.server.accepting.accepted import AcceptedModels
from cans.live.server.backends import BackEndPool, BackEnds
from cans.live.server.catalogue import Catalogue
from cans.live.server.cluster.options import ClusterOptions
from cans.live.server.crowd.load import ServerLoad
from cans.live.server.door.connections import RESERVED, Connections, raise_descriptor_limit
from cans.live.server.door.gate import Gate
from cans.live.server.door.identity import TokenFile
from cans.live.server.door.quotas import QuotaOptions, Quotas
from cans.live.server.door.room import Room
from cans.live.server.door.standard import add_health_and_reflection
from cans.live.server.edge_service import EdgeService
from cans.live.server.fleet.recorder import Recorder
from cans.live.server.model_folder import ModelFolder
from cans.live.server.open_inference import OpenInferenceService
from cans.live.server.own_runs import OwnRuns
from cans.live.server.pools import Pools
from cans.live.server.routes import handlers
from cans.live.server.workers import Workers
from cans.live.split import SplitModel
from cans.live.store import open_store
from cans.live.wire.inference import WHOLE
from cans.live.wire.terms import Terms
from cans.live.wire.tls import ServerTls

_log = logging.getLogger(__name__)
MOST_TOGETHER = 64  # requests in one run
SLACK = 64 << 10  # bytes of a message beside its tensors: header, uploads, padding


@dataclass(frozen=True)
class ServerOptions:
    """How a server runs."""

    terms: Terms  # how its fleet learns
    listen: str = "127.0.0.1:7070"  # port 0: any free one
    store: str = "memory:"  # where pools live
    tokens: Path | None = None  # who may join; None: everyone
    tls: ServerTls | None = None
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)  # back-ends at a time
    cluster: ClusterOptions | None = None  # back-ends as actors of a Ray cluster; None: threads
    queue: int = 16  # requests that may wait for a worker
    batch: int = 1  # requests of one kind that may run together, where that is faster; 1: none
    largest_message: int = 64 << 20  # bytes; VGG-16's largest crossing tensor has 12.8 MB
    in_flight: int = 128 << 20  # bytes of requests at a time, of all callers
    quotas: QuotaOptions = field(default_factory=QuotaOptions)
    books: bool = True  # times its back-ends itself; False: devices are believed about them
    observed: bool = True  # remember what devices do, for the page, Status and metrics
    keep_days: float = 365.0  # what nobody used for longer is forgotten
    drain_seconds: float = 10.0  # how long a shutdown waits for running requests

    def __post_init__(self) -> None:
        if self.workers < 1 or self.queue < 0 or self.largest_message < 1 << 16:
            raise InputError("need at least 1 worker, a queue of 0 or more, messages of 64 KB")
        if not 1 <= self.batch <= MOST_TOGETHER:
            raise InputError(f"--batch must be 1 to {MOST_TOGETHER}, not {self.batch}")
        if self.batch > 1 and self.cluster is not None:
            raise InputError("--batch and --cluster do not go together")
        if not self.keep_days >= 1.0:
            raise InputError("--keep-days must be at least 1")

    @property
    def is_open(self) -> bool:
        """Whether everyone on the network may use this server."""
        host = self.listen.rpartition(":")[0].strip("[]")
        mutual = self.tls is not None and self.tls.client_authority is not None
        loopback = host in ("localhost", "::1") or host[:4] == "127."
        return self.tokens is None and not mutual and not loopback

    def warn_if_open(self, strict: bool) -> None:
        """One line if everyone on the network may use this server; `strict`: an error."""
        if not self.is_open:
            return
        advice = "give --token-file or --tls-client-ca, or listen on 127.0.0.1"
        if strict:
            raise InputError(f"everyone who reaches {self.listen} could join; {advice}")
        _log.warning("everyone on the network may join", extra={"listen": self.listen,
                                                                "advice": advice})  # fmt: skip


class EdgeServer:
    """`async with EdgeServer(models, options) as server: ...` listens on `server.port`."""

    def __init__(
        self,
        models: Sequence[SplitModel],
        options: ServerOptions,
        folder: ModelFolder | None = None,
        accepted: AcceptedModels | None = None,
    ) -> None:
        """`folder`: what is in it is served too, as it changes. `accepted`: and so is what devices
        give."""
        self.options = options
        self._folder = folder
        self._accepted = accepted
        if accepted is not None and options.is_open:
            raise InputError(
                "--accept-models needs --token-file or --tls-client-ca beyond loopback: "
                f"everyone who reaches {options.listen} could send models"
            )
        self._tasks: list[asyncio.Task[None]] = []
        models = [*models, *(folder.first() if folder is not None else ())]
        self.catalogue = Catalogue(models, options.terms)
        given = accepted.first() if accepted is not None else []
        for each in given:
            self.catalogue.put(each, given=True)
        self.workers = self._pool()
        self.back_ends = BackEnds(self.catalogue, self.workers)
        self.load = ServerLoad(self.workers, options.terms.policy.load_aware)
        self.clock = Clock()
        self.recorder = Recorder(self.catalogue, self.clock.now, options.observed)
        self.single = self._largest_single()
        self.connections = Connections(raise_descriptor_limit() - RESERVED)
        self.quotas = Quotas(options.quotas)
        self.gate = self._gate()
        self.port = 0
        self.pools: Pools
        self._own_runs: OwnRuns
        self._server: Any = None
        self._health: Any = None

    def _pool(self) -> BackEndPool:
        if self.options.cluster is None:
            return Workers(self.options.workers, self.options.queue, batch=self.options.batch)
        from cans.live.server.cluster.pool import ClusterPool

        return ClusterPool(lambda: self.catalogue.models, self.options.cluster, self.options.queue)

    def _largest_single(self) -> int:
        """Bytes of one gRPC message: larger requests travel in pieces, except whole inputs of
        clients that know nothing of pieces."""
        inputs = max(
            (sum(each.nbytes for each in model.inputs) for model in self.catalogue.models),
            default=0,
        )
        return min(max(WHOLE, 2 * inputs) + SLACK, self.options.largest_message)

    def _gate(self) -> Gate:
        options = self.options
        mutual = options.tls is not None and options.tls.client_authority is not None
        each = max(options.in_flight // 8, self.back_ends.largest() + self.single)
        if self._folder is not None or self._accepted is not None:  # whose next model may be larger
            each = max(each, options.largest_message + self.single)
        room = Room(max(options.in_flight, each), each)
        tokens = TokenFile(options.tokens) if options.tokens else None
        return Gate(
            tokens, mutual, room, self.connections, self.quotas, self.single,
            self.recorder.happenings, self.clock,
        )  # fmt: skip

    async def __aenter__(self) -> EdgeServer:
        options = self.options
        happenings = self.recorder.happenings
        self.pools = Pools(
            open_store(options.store), self.catalogue, self.clock, happenings, options.books
        )
        try:
            self._server = grpc.aio.server(
                options=_grpc_options(options.largest_message, self.single)
            )
            self._add_services()
            self.port = self._bind()
            self.recorder.server = f"{socket.gethostname()}:{self.port}"
            await self.pools.recall()
        except BaseException:
            await self.pools.close()
            raise
        self.pools.start(options.keep_days)
        self.recorder.start()
        await self._server.start()
        self.connections.start(self.port)
        telling = self.load.keep_telling(self.pools.watching, self.pools.call)
        self._tasks.append(asyncio.create_task(telling))
        if self._folder is not None:
            following = self._folder.keep_in_step(self.catalogue)
            self._tasks.append(asyncio.create_task(following))
        _log.info("listening", extra={"port": self.port, "policy": options.terms.policy.name})
        return self

    def _add_services(self) -> None:
        name = f"{socket.gethostname()}:{os.getpid()}"
        self._own_runs = OwnRuns(self.back_ends, self.pools, self.catalogue)
        edge = EdgeService(
            name, self.catalogue, self.pools, self.back_ends, self.quotas, self.clock,
            self.options.largest_message, self.recorder, self.load, self._own_runs, self._accepted,
        )  # fmt: skip
        whole = OpenInferenceService(self.catalogue, self.back_ends)
        self._server.add_generic_rpc_handlers(handlers(self.gate, edge, whole))
        self._health = add_health_and_reflection(self.gate, self._server)

    def _bind(self) -> int:
        listen, tls = self.options.listen, self.options.tls
        host, colon, number = listen.rpartition(":")
        if not colon or not number.isdigit() or int(number) > 65535:
            raise InputError(f"--listen must be HOST:PORT, not {listen!r}")
        try:
            socket.getaddrinfo(host.strip("[]") or None, int(number), flags=socket.AI_PASSIVE)
        except OSError as error:
            raise RunError(f"cannot listen on {listen}: {error.strerror}") from None
        try:
            if tls is None:
                port = self._server.add_insecure_port(listen)
            else:
                port = self._server.add_secure_port(listen, tls.credentials())
        except RuntimeError:
            port = 0
        if not port:
            raise RunError(f"cannot listen on {listen}: the port is taken or not allowed")
        return int(port)

    async def __aexit__(self, *_: object) -> None:
        """Finish what was begun, take nothing new, lose nothing."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._own_runs.close()
        await self._health.enter_graceful_shutdown()
        self.pools.end_watches()
        await self._server.stop(self.options.drain_seconds)
        await self.connections.stop()
        self.workers.close()
        await self.pools.close()
        self.recorder.close()
        _log.info("stopped")


def _grpc_options(largest: int, single: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", single),
        ("grpc.max_send_message_length", largest),
        ("grpc.max_concurrent_streams", 128),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.max_metadata_size", 16 << 10),
        # One server per port, or a second one would quietly take half of the devices.
        ("grpc.so_reuseport", 0),
        # Devices behind dead links are let go; devices may ask whether we live every 5 s.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 4_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


async def serve(
    models: Sequence[SplitModel],
    options: ServerOptions,
    ready: Callable[[EdgeServer], None] | None = None,
    folder: ModelFolder | None = None,
    accepted: AcceptedModels | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    # Before the signals: a cluster's library takes them.
    made = EdgeServer(models, options, folder, accepted)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # Windows, where Ctrl-C is an exception instead
            loop.add_signal_handler(each, stop.set)
    async with made as server:
        if ready is not None:
            ready(server)
        await stop.wait()
        _log.info("draining")
