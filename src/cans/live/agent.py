"""The agent: answers a device's requests one at a time and does everything between them.

Whoever has the turn (`inbox.py`) owns the learner: the agent's thread, or for the time of one
request the caller's. An answer is handed over before it is learned from, and the turn passes on
only after that: `observe` always comes before the next `select`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any

from cans.errors import (
    Busy,
    CansError,
    DeadlineExceeded,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    Unreachable,
)
from cans.learning import Upload
from cans.live.clock import Clock
from cans.live.contact import Contact
from cans.live.experience import Experience
from cans.live.inbox import (
    Event,
    Inbox,
    News,
    NotSynced,
    NotWelcomed,
    Probed,
    Synced,
    Turn,
    WatchEnded,
    Welcomed,
)
from cans.live.options import DeviceOptions
from cans.live.report import Report
from cans.live.request import Abandoned
from cans.live.rounds import Job, Round, Rounds, expired
from cans.live.route import Route
from cans.live.timing import Stopwatch
from cans.live.usage import Usage

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0  # between tries to deliver an upload, or to watch again


class Task:
    """Something else than an inference that the agent's thread is asked to do."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.future: Future[None] = Future()

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(None)


class Agent(threading.Thread):
    """Runs until `close`."""

    def __init__(
        self,
        options: DeviceOptions,
        digest: str,
        experience: Experience,
        contact: Contact,
        inbox: Inbox,
        route: Route,
        rounds: Rounds,
        stopwatch: Stopwatch,
        usage: Usage,
        clock: Clock,
        begin: Callable[[], tuple[Upload, ...]],
    ) -> None:
        super().__init__(name="cans-device", daemon=True)
        self._options = options
        self._digest = digest
        self._experience = experience
        self._contact = contact
        self._inbox = inbox
        self._route = route
        self._rounds = rounds
        self._stopwatch = stopwatch
        self._usage = usage
        self._clock = clock
        self._begin = begin  # makes offline experience when new terms ask for it
        self._on_wire = 0  # Syncs without an answer
        self._send_at: float | None = 0.0  # when to try again to deliver; now: from a former life
        self._watching = False
        self._watch_at = 0.0
        self._probing = False
        self._trouble = "no server has been reached yet"
        self.last: Report | None = None
        self.failures = 0  # requests the server did not answer

    # --- the thread ---

    def run(self) -> None:
        while True:
            turn, job = self._inbox.next_turn(self._idle_seconds())
            try:
                if turn is Turn.AFTER:
                    job()
                self._tend()
                if turn is Turn.END:
                    self._finish()
                    return
                if isinstance(job, Task):
                    job.run()
                elif turn is Turn.JOB:
                    after = self._answer(job)
                    if after is not None:
                        after()
            except Exception:  # a mistake of ours must not end the thread
                _log.exception("the agent made a mistake")
            finally:
                self._inbox.give_back()

    def answer_here(self, job: Job) -> bool:
        """Answer in the caller's thread, if the agent is idle and the deadline is far enough that
        nobody needs to watch it from outside; the bookkeeping is left to the agent."""
        enough = 2.0 * self._rounds.times.rest(0) < job.deadline - monotonic()
        if not (enough and self._options.local and self._inbox.try_take()):
            return False
        after: Callable[[], None] | None = None
        try:
            self._tend()
            after = self._answer(job)
        finally:
            if after is None:
                self._inbox.give_back()
            else:
                self._inbox.hand_over(after)
        return True

    def _answer(self, job: Job) -> Callable[[], None] | None:
        """Serve a request, whatever happens; returns its bookkeeping."""
        try:
            return self._serve(job)
        except Exception as error:
            _log.exception("the agent made a mistake")
            if not job.future.done():
                job.future.set_exception(error)
            return None

    def _finish(self) -> None:
        """An upload on the wire is given a moment to be acknowledged; if not, it goes again with
        the next start."""
        self._await_answers(monotonic() + 1.0)

    # --- tasks ---

    def settle(self, seconds: float) -> None:
        self._await_answers(monotonic() + seconds)

    def refresh(self) -> None:
        server = self._route.usable
        if server is None:
            raise Unreachable(self._trouble)
        who, uploads = self._experience.state.identity, self._experience.pending()
        self._welcomed(server, self._contact.join(server, who, self._digest, uploads))

    def _idle_seconds(self) -> float | None:
        due = [self._route.next_try(), self._send_at]
        if self._wants_to_watch():
            due.append(self._watch_at)
        times = [each for each in due if each is not None]
        return max(min(times) - monotonic(), 0.0) if times else None

    def _tend(self) -> None:
        """Everything that waits for no request: news, joins, uploads that failed before."""
        for event in self._inbox.events():
            self._heed(event)
        now = monotonic()
        server = self._route.to_join(now)
        if server is not None and not self._inbox.closed:
            self._route.joining(server)
            self._contact.join_later(server, self._experience.state.identity, self._digest)
        if self._send_at is not None and now >= self._send_at:
            self._deliver()
        if self._wants_to_watch() and now >= self._watch_at and self._route.usable is not None:
            self._watching = True
            device = self._experience.state.identity.device
            self._contact.watch(self._route.usable, device, self._experience.known)

    def _wants_to_watch(self) -> bool:
        terms = self._experience.terms
        wanted = terms is not None and terms.fresh_pools and bool(self._experience.known)
        return wanted and not self._watching and self._route.usable is not None

    # --- one request ---

    def _serve(self, job: Job) -> Callable[[], None] | None:
        late = expired(job)
        if late is not None:
            job.future.set_exception(late)
            return None
        self._await_sync(job)
        self._rounds.abandonment.begin(job.given_up.is_set)
        server = self._route.usable
        try:
            played = self._rounds.play(job, server, self._clock.now(), self._why_not(server))
        except Abandoned:
            return None  # its caller has been told already
        except CansError as error:
            self._judge(server, error)
            if not job.future.done():
                job.future.set_exception(error)
            return None
        finally:
            self._rounds.abandonment.end()
        self.last = played.report
        if not job.given_up.is_set():
            job.future.set_result(played.outputs)  # the answer; what follows is bookkeeping
        return lambda: self._after(played, server)

    def _await_sync(self, job: Job) -> None:
        """Let the answer to the last upload come in, for a moment: it is worth waiting for."""
        self._await_answers(min(monotonic() + self._options.sync_wait_ms / 1e3, job.deadline))

    def _await_answers(self, until: float) -> None:
        while self._on_wire and (left := until - monotonic()) > 0:
            if self._inbox.wait_for_event(left):
                for event in self._inbox.events():
                    self._heed(event)

    def _why_not(self, server: int | None) -> str:
        return "" if server is not None else f"local, because {self._trouble}"

    def _after(self, played: Round, server: int | None) -> None:
        if played.failure is not None:
            self.failures += 1
            self._judge(server, played.failure)
        elif played.report.answered_by != "device" and server is not None:
            self._route.succeeded(server)
        self._experience.adopt(played.pools)
        self._usage.used(played.front)
        if played.choice is None or self._experience.terms is None:
            self._experience.answered()
            return
        latencies = self._stopwatch.latencies(played.choice, played.measured)
        uploads = self._experience.observe(played.choice, latencies, self._clock.now())
        if uploads and self._experience.terms.delivery == "immediate":
            self._deliver()
        self._probe_if_wanted(played.choice.point)

    def _probe_if_wanted(self, point: int) -> None:
        """A device that stays local hears nothing of the link: it times a small exchange."""
        server = self._route.usable
        stays = point == len(self._experience.learner.table.points) - 1  # type: ignore[union-attr]
        if not stays or server is None or self._probing:
            return
        if self._experience.wants_probe(self._clock.now()):
            self._probing = True
            self._contact.probe(server)

    def _judge(self, server: int | None, error: CansError) -> None:
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

    # --- delivering uploads ---

    def _deliver(self) -> None:
        self._send_at = None
        terms = self._experience.terms
        if terms is None or terms.delivery != "immediate" or self._on_wire:
            return  # what is on the wire reports back, and then the rest is looked at
        uploads = self._experience.pending()
        waiting = bool(uploads) or self._experience.owes
        if not waiting:
            return
        if not uploads or self._route.usable is None:
            self._send_at = monotonic() + _RETRY_SECONDS
            return
        self._on_wire += 1
        self._contact.sync(self._route.usable, uploads)

    # --- what others report ---

    def _heed(self, event: Event) -> None:
        if isinstance(event, Synced):
            self._on_wire -= 1
            self._experience.adopt(event.pools)
            self._experience.save()
            if self._experience.still_owes(event.uploads):  # not acknowledged: not at full speed
                self._send_at = monotonic() + _RETRY_SECONDS
            else:
                self._deliver()
        elif isinstance(event, NotSynced):
            self._on_wire -= 1
            _log.warning("uploads not delivered", extra={"reason": str(event.error)})
            self._judge(event.server, event.error)
            self._send_at = monotonic() + _RETRY_SECONDS
        elif isinstance(event, News):
            self._experience.adopt(event.pools)
        elif isinstance(event, Probed):
            self._probing = False
            if event.milliseconds is not None and self._experience.wants_probe(self._clock.now()):
                self._experience.observe_probe(event.milliseconds, self._clock.now())
                self._deliver()
        elif isinstance(event, WatchEnded):
            self._watching = False
            self._watch_at = monotonic() + _RETRY_SECONDS
            if isinstance(event.error, Unreachable):
                self._judge(event.server, event.error)
        elif isinstance(event, Welcomed):
            self._welcomed(event.server, event.welcome)
        elif isinstance(event, NotWelcomed):
            self._trouble = str(event.error)
            self._route.join_failed(event.server, monotonic())

    def _welcomed(self, server: int, welcome: Any) -> None:
        try:
            self._experience.accept(welcome)
        except CansError as error:
            _log.error("cannot join", extra={"reason": str(error)})
            self._trouble = str(error)
            self._route.join_failed(server, monotonic())
            return
        self._clock.follow(welcome.time)
        if self._experience.needs_offline:
            self._begin()
        self._experience.save()
        self._route.joined(server)
        self._watching = False
        _log.info("joined", extra={"server": self._contact.links[server].server})
        self._deliver()

    # --- closing ---

    def close(self) -> None:
        """Answer what was begun, refuse the rest, keep everything."""
        for job in self._inbox.close():
            job.future.set_exception(Unreachable("the device was closed"))
        if self.is_alive():
            self.join()
