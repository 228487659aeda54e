"""A device's talk with its servers apart from inference: joining, uploading, watching.

Everything here happens beside the threads that answer requests, and is posted as an event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread
from time import sleep

from cans.errors import CansError, Refused, RunError, Unreachable
from cans.learning import DeviceIdentity, PoolKey, Upload
from cans.live.device.hooks import Hooks
from cans.live.device.options import DeviceOptions
from cans.live.device.reporting.accounts import Accounts
from cans.live.device.reporting.traces import Traces
from cans.live.device.servers.allowance import Allowance
from cans.live.device.servers.told import ToldLoad
from cans.live.device.start.offering import Offer
from cans.live.wire.account import Account
from cans.live.wire.link import Link, Pending, Stream
from cans.live.wire.messages import (
    JoinRequest,
    PoolNews,
    PoolUpdate,
    SyncReply,
    SyncRequest,
    WatchRequest,
    Welcome,
)
from cans.models.run import background

_log = logging.getLogger(__name__)
SYNC_SECONDS = 10.0


_NEWS_PAUSE = 0.005  # seconds between messages of a watch: gRPC holds a faster server back


@dataclass(frozen=True)
class Welcomed:
    server: int
    welcome: Welcome


@dataclass(frozen=True)
class NotWelcomed:
    server: int
    error: CansError


@dataclass(frozen=True)
class Synced:
    server: int
    uploads: Sequence[Upload]
    pools: tuple[PoolUpdate, ...]


@dataclass(frozen=True)
class NotSynced:
    server: int
    error: CansError
    stale: bool = False  # of a connection that is not used any more


@dataclass(frozen=True)
class News:
    """Changed pools wait to be taken with `Contact.news`."""


@dataclass(frozen=True)
class Probed:
    milliseconds: Sequence[float]  # of each size, as far as there were answers


@dataclass(frozen=True)
class WatchEnded:
    server: int
    error: CansError | None


@dataclass(frozen=True)
class Told:
    """An account that travelled alone has arrived, or is lost."""


@dataclass(frozen=True)
class Kept:
    """What had to be on the disk is there."""


Event = Welcomed | NotWelcomed | Synced | NotSynced | News | Probed | WatchEnded | Told | Kept


class Contact:
    """Links to every server of a device."""

    def __init__(self, options: DeviceOptions, hooks: Hooks, post: Callable[[Event], None]) -> None:
        self._options = options
        self.allowance = Allowance(options.max_mb_per_day)
        self.tls = options.tls
        self._hooks = hooks
        self.post = post  # to the agent of now; what another one asked for is told to that one
        self._news: dict[PoolKey, PoolUpdate] = {}  # the latest of each, not yet taken
        self._news_lock = Lock()
        self.links = [
            Link(server, tls=options.tls, token=options.token, meter=self.allowance.add)
            for server in options.servers
        ]
        self._threads: list[Thread] = []
        self.accounts = Accounts()
        self._telling: set[Pending[SyncReply]] = set()
        self.traces = Traces(options.traces, options.name)
        self._stream: Stream[PoolNews] | None = None
        self._closed = False
        self.offer: Offer | None = None  # a model for servers that lack it
        self.round_trip_ms = 0.0  # by the last probes; 0: not known
        self.load = ToldLoad()
        self.whole_ms = 0.0  # of the whole model on this device; 0: not measured

    # --- joining ---

    def join(
        self,
        server: int,
        identity: DeviceIdentity,
        model: str,
        uploads: Sequence[Upload] = (),
        moved: bool = False,
    ) -> Welcome:
        """Join and wait; raises why not. `moved`: ask for another group."""
        request = JoinRequest(
            identity, model, tuple(uploads), self.whole_ms, self._options.provider, moved
        )
        try:
            welcome = self.links[server].join(request, self._options.connect_seconds)
        except Refused as error:
            if self.offer is None or error.code != "NOT_FOUND":
                raise
            if not self.offer.give(self.links[server]):
                if not self.offer.why_not:
                    raise
                said = f"{error}. It was offered: {self.offer.why_not}"
                raise Refused(said, error.code) from None
            welcome = self.links[server].join(request, self._options.connect_seconds)
        self.load.tell(server, welcome.load)
        return welcome

    def join_later(
        self, server: int, identity: DeviceIdentity, model: str, moved: bool = False
    ) -> None:
        """Join in the background; posts `Welcomed` or `NotWelcomed`. Over a new connection, unless
        the device only moves to another group."""
        if not moved:
            self.stop_watching()
        post = self.post

        def work() -> None:
            try:
                if not moved:
                    self.links[server].renew()
                post(Welcomed(server, self.join(server, identity, model, moved=moved)))
            except CansError as error:
                post(NotWelcomed(server, error))
            except Exception as error:  # a closed channel, on the way out
                post(NotWelcomed(server, Unreachable(str(error))))

        self._start(work, "cans-join")

    # --- uploading ---

    def sync(
        self,
        server: int,
        uploads: Sequence[Upload],
        device: str = "",
        account: Account | None = None,
    ) -> None:
        """Send uploads; posts `Synced` or `NotSynced`."""
        request = SyncRequest(tuple(uploads), device, account)
        link, post = self.links[server], self.post
        connection = link.renewals
        pending = link.sync(request, SYNC_SECONDS)

        def done() -> None:
            try:
                post(Synced(server, uploads, pending.result().pools))
            except CansError as error:
                post(NotSynced(server, error, stale=link.renewals > connection))

        pending.when_done(done)

    def tell(self, server: int, device: str, account: Account, wait_seconds: float = 0.0) -> None:
        """Send an account by itself; a lost one is no loss. Posts `Told`."""
        call = self.links[server].sync(SyncRequest((), device, account), SYNC_SECONDS)
        self._telling.add(call)  # gRPC cancels a call that nobody holds any more
        call.when_done(partial(self._told, call))
        if wait_seconds:
            with suppress(CansError, TimeoutError):
                call.result(wait_seconds)

    def _told(self, call: Pending[SyncReply]) -> None:
        self._telling.discard(call)
        self.post(Told())

    @property
    def telling(self) -> bool:
        """Whether an account travels by itself just now."""
        return bool(self._telling)

    # --- probing ---

    def probe(self, server: int, sizes: Sequence[int]) -> None:
        """Time exchanges of these sizes, one after the other; posts `Probed`."""
        post = self.post

        def work() -> None:
            times: list[float] = []
            try:
                for size in sizes:
                    paced_ms = self._hooks.pace(size)
                    took_ms, load = self.links[server].probe(size, SYNC_SECONDS)
                    times.append(paced_ms + took_ms)
                    self.load.tell(server, load)
            except Exception as error:  # no answer is no experience; requests judge the server
                _log.debug("no probe", extra={"reason": str(error)})
            post(Probed(times))

        self._start(work, "cans-probe")

    # --- watching ---

    def watch(self, server: int, device: str, known: dict[PoolKey, tuple[int, int]]) -> None:
        """Hear of every change of these pools; posts `WatchEnded` when the stream ends."""
        self.stop_watching()
        stream = self._stream = self.links[server].watch(WatchRequest(device, known))
        post = self.post

        def listen() -> None:
            error: CansError | None = None
            try:
                for news in stream:
                    self.load.tell(server, news.load)
                    with self._news_lock:
                        told = bool(self._news)
                        for update in news.pools:
                            if update.download.key in known:
                                self._news[update.download.key] = update
                    if self._news and not told:
                        post(News())
                    sleep(_NEWS_PAUSE)
            except CansError as found:
                error = found
            except Exception as found:
                error = RunError(str(found))
            if self._stream is stream:
                self._stream = None
                post(WatchEnded(server, error))

        self._start(listen, "cans-watch")

    def news(self) -> tuple[PoolUpdate, ...]:
        """The latest of every pool that has changed since this was asked last."""
        with self._news_lock:
            found = tuple(self._news.values())
            self._news.clear()
        return found

    @property
    def watching(self) -> bool:
        """Whether changed pools come by themselves."""
        return self._stream is not None

    def stop_watching(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    def _start(self, work: Callable[[], None], name: str) -> None:
        if self._closed:
            return
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(background.start(work, name))

    def close(self) -> None:
        """End every call and wait for the threads that waited for one."""
        self._closed = True
        self.stop_watching()
        self.traces.close()
        for link in self.links:
            link.close()
        for thread in self._threads:
            background.join_patiently(thread)
