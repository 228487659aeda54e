"""What an agent does between requests: joining, delivering uploads, watching pools, probing.

Nothing here waits for a server: others post events, and the agent handles them in its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TypeGuard

from cans.errors import (
    Busy,
    CansError,
    DeadlineExceeded,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    Unreachable,
)
from cans.learning import Choice, Upload
from cans.learning.table import PROBE_BYTES
from cans.live.clock import Clock
from cans.live.device.experience import Experience
from cans.live.device.reporting.report import Report
from cans.live.device.servers.contact import (
    Contact,
    Event,
    Kept,
    News,
    NotSynced,
    NotWelcomed,
    Probed,
    Synced,
    WatchEnded,
    Welcomed,
)
from cans.live.device.servers.route import Route
from cans.live.device.timing import round_trip_of
from cans.live.wire.messages import Welcome

_log = logging.getLogger(__name__)
_MOVE_SECONDS = 60.0  # between two changes of a device's group
_RETRY_SECONDS = 1.0  # between tries to deliver an upload, or to watch again
_TOMORROW_SECONDS = 60.0  # between looks whether a new day has begun
_LEAVING_SECONDS = 0.5  # for the account of a device that closes


class Session:
    """A device's dealings with its servers apart from inference. Used by whoever has the turn."""

    def __init__(
        self,
        digest: str,
        experience: Experience,
        contact: Contact,
        route: Route,
        clock: Clock,
        begin: Callable[[], tuple[Upload, ...]],
        follow: Callable[[int], None] | None = None,
    ) -> None:
        self._digest = digest
        self._experience = experience
        self._contact = contact
        self._route = route
        self._clock = clock
        self._begin = begin  # makes offline experience when new terms ask for it
        self._follow = follow  # of a server that has another model; None: this one is kept
        self._on_wire = 0  # Syncs without an answer
        self._send_at: float | None = 0.0  # 0.0: retry what the last process left, at once
        self._watching = False
        self._watch_at = 0.0
        self._move_at = 0.0
        self._arriving = True  # at a server: nothing was looked at yet
        self._probing = False
        self._trouble = "no server has been reached yet"
        self._warned = ""  # the last reason of a server that said no

    @property
    def server(self) -> int | None:
        """The server that requests may go to now."""
        return None if self._contact.allowance.spent else self._route.usable

    @property
    def why_not(self) -> str:
        """Why no request may go to a server; empty: one may."""
        if self.server is not None:
            return ""
        spent = self._contact.allowance.spent
        return f"local, because {self._contact.allowance.why if spent else self._trouble}"

    # --- looking after things ---

    def idle_seconds(self) -> float | None:
        """When something is due, if nothing happens before; None: nothing is."""
        due = [self._route.next_try(), self._send_at]
        if self._wants_to_watch():
            due.append(self._watch_at)
        times = [each for each in due if each is not None]
        if self._contact.allowance.spent:
            return _TOMORROW_SECONDS
        return max(min(times) - monotonic(), 0.0) if times else None

    def tend(self, events: Iterable[Event]) -> None:
        """Everything that waits for no request: news, joins, uploads that failed before."""
        for event in events:
            self._handle(event)
        if self._contact.allowance.spent:
            self._contact.stop_watching()
            self._watching = False
            return
        now = monotonic()
        server = self._route.to_join(now)
        if server is not None:
            self._route.joining(server)
            self._contact.join_later(server, self._experience.state.identity, self._digest)
        if self._send_at is not None and now >= self._send_at:
            self.deliver()
        if self._wants_to_watch() and now >= self._watch_at and self.server is not None:
            self._watching = True
            device = self._experience.state.identity.device
            self._contact.watch(self.server, device, self._experience.known)
        self._move_if_outgrown(now)
        if self._arriving and self.server is not None:
            self._arriving = False
            if self._experience.wants_all_probes():
                self._probe(PROBE_BYTES)

    def _move_if_outgrown(self, now: float) -> None:
        """A device that has become another machine learns with others of its kind from now on.
        What it has not delivered yet belongs to the group that it leaves."""
        usable = self.server
        if usable is None or now < self._move_at or not self._experience.outgrown:
            return
        self._move_at = now + _MOVE_SECONDS
        if self._experience.owes:
            self._move_at = now + _RETRY_SECONDS
            return
        self._contact.whole_ms = self._experience.whole_ms
        who = self._experience.state.identity
        self._contact.join_later(usable, who, self._digest, moved=True)

    def _wants_to_watch(self) -> bool:
        terms = self._experience.terms
        wanted = terms is not None and terms.fresh_pools and bool(self._experience.known)
        return wanted and not self._watching and self.server is not None

    @property
    def waits(self) -> bool:
        """Whether something that was learned or done is on its way to a server that is there."""
        if self._on_wire or self._contact.telling:
            return True
        return self.server is not None and self._owes_now

    @property
    def _owes_now(self) -> bool:
        """Whether there are uploads that go without a request: for the first time, or again because
        nobody knows whether they have arrived. Others wait for the next one, once they are safe."""
        terms = self._experience.terms
        if terms is None or terms.delivery == "immediate":
            return self._experience.owes
        return self._experience.waits_for_disk

    @property
    def trouble(self) -> str:
        """Why no server is usable."""
        return self._contact.allowance.why if self._contact.allowance.spent else self._trouble

    # --- what a request has shown ---

    def answered(self, server: int, late: bool = False) -> None:
        """A reply has come; `late`: when this device had answered by itself."""
        if late:
            self._route.replied_late(server)
        else:
            self._route.succeeded(server)

    def never_answered(self, server: int, error: CansError) -> None:
        """The late reply did not come. The server is suspect since it was late; what a connection
        that was given up says of it adds nothing, a refusal does."""
        if isinstance(error, Refused):
            self.judge(server, error)

    def suspect(self, server: int) -> None:
        """A reply is late, and this device was first."""
        self._trouble = "the server did not answer as quickly as it used to"
        self._route.suspect(server, monotonic())

    def judge(self, server: int | None, error: CansError) -> None:
        """What a failed request says about the server."""
        if server is None:
            return
        self._trouble = str(error)
        if isinstance(error, Refused) and not isinstance(error, Busy):
            # It understood and said no: another table, another policy, a revoked token.
            self._route.failed(server, monotonic())
            self._route.leave(server)
        elif isinstance(error, Unreachable):
            self._route.failed(server, monotonic(), lost=True)
        elif isinstance(error, Busy | DeadlineExceeded | RemoteProtocolError | LocalProtocolError):
            self._route.failed(server, monotonic())

    def probe_if_wanted(self) -> None:
        """A device that stays local hears nothing of the link: it times a small exchange."""
        if self._experience.wants_probe(self._clock.now()):
            self._probe(PROBE_BYTES[:1])

    def _probe(self, sizes: Sequence[int]) -> None:
        server = self.server
        if server is not None and not self._probing:
            self._probing = True
            self._contact.probe(server, sizes)

    # --- delivering uploads ---

    def deliver(self) -> None:
        self._send_at = None
        terms = self._experience.terms
        if terms is None or terms.delivery != "immediate" or self._on_wire:
            return  # what is on the wire reports back, and then the rest is looked at
        uploads = self._experience.pending()
        waiting = bool(uploads) or self._experience.owes
        if not waiting:
            return
        if not uploads or self.server is None:  # without: `Kept` says when they are safe
            self._send_at = monotonic() + _RETRY_SECONDS
            return
        self._on_wire += 1
        device = self._experience.state.identity.device
        self._contact.sync(self.server, uploads, device, self._contact.accounts.take())

    def account_for(self, report: Report, choice: Choice | None, trace: str = "") -> None:
        """Remember an answered inference until the server is told of it, and trace it."""
        self._contact.traces.end(trace, report, self._experience.state.identity.device)
        row = None if choice is None else choice.row
        self._contact.accounts.add(report, row, self.server is not None)

    def tell(self) -> None:
        """Send an account by itself, if the server could not know what this device does."""
        if self._contact.accounts.must_go():
            self._tell_all()

    def leave(self) -> None:
        """The device closes: what it has not told yet is told now, if that takes but a moment."""
        self._tell_all(_LEAVING_SECONDS)

    def _tell_all(self, wait_seconds: float = 0.0) -> None:
        server = self.server
        account = self._contact.accounts.take() if server is not None else None
        if server is not None and account is not None:
            device = self._experience.state.identity.device
            self._contact.tell(server, device, account, wait_seconds)

    # --- what others report ---

    def _handle(self, event: Event) -> None:
        if isinstance(event, Synced):
            self._on_wire -= 1
            self._experience.adopt(event.pools)
            self._experience.save()
            if self._experience.still_owes(event.uploads):  # not acknowledged: not at full speed
                self._send_at = monotonic() + _RETRY_SECONDS
            else:
                self.deliver()
        elif isinstance(event, NotSynced):
            self._on_wire -= 1
            _log.warning("uploads not delivered", extra={"reason": str(event.error)})
            if not event.stale:  # of the connection that is used now, it says nothing
                self.judge(event.server, event.error)
            self._send_at = monotonic() + _RETRY_SECONDS
        elif isinstance(event, News):
            self._experience.adopt(self._contact.news())
        elif isinstance(event, Kept):
            self.deliver()
        elif isinstance(event, Probed):
            self._probing = False
            if event.milliseconds:
                found = round_trip_of(event.milliseconds, PROBE_BYTES)
                known = self._contact.round_trip_ms
                more = len(event.milliseconds) > 1
                self._contact.round_trip_ms = found if more else min(known, found)
            self._experience.observe_probe(event.milliseconds, self._clock.now())
            self.deliver()
        elif isinstance(event, WatchEnded):
            self._watching = False
            self._watch_at = monotonic() + _RETRY_SECONDS
            if isinstance(event.error, Unreachable) or _has_no_such_model(event.error):
                self.judge(event.server, event.error)
        elif isinstance(event, Welcomed):
            self.welcomed(event.server, event.welcome)
        elif isinstance(event, NotWelcomed):
            if self._follow is not None and _has_no_such_model(event.error):
                self._follow(event.server)
            else:
                self._warn_once(event)
            self._trouble = str(event.error)
            self._route.join_failed(event.server, monotonic())

    def _warn_once(self, event: NotWelcomed) -> None:
        """A server that says no, for another model or a token it does not know, is asked again and
        again; the user hears of each reason once."""
        refused = isinstance(event.error, Refused) and not isinstance(event.error, Busy)
        if refused and str(event.error) != self._warned:
            self._warned = str(event.error)
            server = self._contact.links[event.server].server
            _log.warning(
                "the server refuses this device, which goes on alone with its own model",
                extra={"server": server, "reason": self._warned},
            )

    def welcomed(self, server: int, welcome: Welcome) -> None:
        """Go on under these terms."""
        try:
            self._experience.accept(welcome)
            self._clock.follow(welcome.time)
            if self._experience.needs_offline:
                self._begin()
        except Exception as error:  # whatever a server says, the next try must come
            _log.error("cannot join", extra={"reason": str(error)})
            self._trouble = str(error)
            self._route.join_failed(server, monotonic())
            return
        self._experience.save()
        self._warned = ""
        self._route.joined(server)
        self._watching = False
        self._arriving = True
        _log.info("joined", extra={"server": self._contact.links[server].server})
        self.deliver()


def _has_no_such_model(error: CansError | None) -> TypeGuard[Refused]:
    return isinstance(error, Refused) and error.code == "NOT_FOUND"
