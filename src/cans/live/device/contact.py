"""A device's talk with its servers apart from inference: joining, uploading, watching.

Everything here happens beside the thread that answers requests, and reports to its inbox.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Thread

from cans.errors import CansError, RunError, Unreachable
from cans.learning import DeviceIdentity, PoolKey, Upload
from cans.live.device.accounts import Accounts
from cans.live.device.deadline import Pace
from cans.live.device.inbox import (
    Inbox,
    News,
    NotSynced,
    NotWelcomed,
    Probed,
    Synced,
    WatchEnded,
    Welcomed,
)
from cans.live.device.options import DeviceOptions
from cans.live.wire.account import Account
from cans.live.wire.link import Link, Stream
from cans.live.wire.messages import JoinRequest, PoolNews, SyncRequest, WatchRequest, Welcome
from cans.models.run import background

_log = logging.getLogger(__name__)
SYNC_SECONDS = 10.0


class Contact:
    """Links to every server of a device."""

    def __init__(self, options: DeviceOptions, inbox: Inbox) -> None:
        self._options = options
        self._inbox = inbox
        self.pace = Pace(options.pace_mbps)
        self.links = [
            Link(server, tls=options.tls, token=options.token) for server in options.servers
        ]
        self._threads: list[Thread] = []
        self.accounts = Accounts()
        self._stream: Stream[PoolNews] | None = None
        self._closed = False
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
        return self.links[server].join(request, self._options.connect_seconds)

    def join_later(
        self, server: int, identity: DeviceIdentity, model: str, moved: bool = False
    ) -> None:
        """Join in the background; a `Welcomed` or `NotWelcomed` will come."""

        def work() -> None:
            try:
                welcome = self.join(server, identity, model, moved=moved)
                self._inbox.put(Welcomed(server, welcome))
            except CansError as error:
                self._inbox.put(NotWelcomed(server, error))
            except Exception as error:  # a closed channel, on the way out
                self._inbox.put(NotWelcomed(server, Unreachable(str(error))))

        self._start(work, "cans-join")

    # --- uploading ---

    def sync(
        self,
        server: int,
        uploads: Sequence[Upload],
        device: str = "",
        account: Account | None = None,
    ) -> None:
        """Send uploads; a `Synced` or `NotSynced` will come."""
        request = SyncRequest(tuple(uploads), device, account)
        pending = self.links[server].sync(request, SYNC_SECONDS)

        def done() -> None:
            try:
                self._inbox.put(Synced(server, uploads, pending.result().pools))
            except CansError as error:
                self._inbox.put(NotSynced(server, error))

        pending.when_done(done)

    def tell(self, server: int, device: str, account: Account) -> None:
        """Send an account by itself; nobody waits for it, and a lost one is no loss."""
        self.links[server].sync(SyncRequest((), device, account), SYNC_SECONDS)

    # --- probing ---

    def probe(self, server: int, sizes: Sequence[int]) -> None:
        """Time exchanges of these sizes, one after the other; a `Probed` will come."""

        def work() -> None:
            times: list[float] = []
            try:
                for size in sizes:
                    paced_ms = self.pace.wait(size)
                    times.append(paced_ms + self.links[server].probe(size, SYNC_SECONDS))
            except Exception as error:  # no answer is no experience; requests judge the server
                _log.debug("no probe", extra={"reason": str(error)})
            self._inbox.put(Probed(times))

        self._start(work, "cans-probe")

    # --- watching ---

    def watch(self, server: int, device: str, known: dict[PoolKey, tuple[int, int]]) -> None:
        """Hear of every change of these pools; a `WatchEnded` will come one day."""
        self.stop_watching()
        stream = self._stream = self.links[server].watch(WatchRequest(device, known))

        def listen() -> None:
            error: CansError | None = None
            try:
                for news in stream:
                    self._inbox.put(News(news.pools))
            except CansError as found:
                error = found
            except Exception as found:
                error = RunError(str(found))
            if self._stream is stream:
                self._stream = None
                self._inbox.put(WatchEnded(server, error))

        self._start(listen, "cans-watch")

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
        for link in self.links:
            link.close()
        for thread in self._threads:
            background.join_patiently(thread)
