"""Whose turn it is: one request at a time runs on the processor, as they came; and who uses the
learner: the request whose turn it is, to choose, or the agent, also while a front-end runs.

A request waits for what was left to the agent before it came, so that requests one after the other
are each learned from before the next choice. Of a stream, in which others end while it waits, it
does not: what is heard late is learned late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Lock, RLock
from time import monotonic

from cans.errors import DeadlineExceeded, Unreachable
from cans.live.device.servers.contact import Event

Work = Callable[[], None]


class Turns:
    """Turns of requests, and work for the agent: what ended requests leave, before events."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._agent = Condition(self._lock)  # wakes the agent,
        self._settled = Condition(self._lock)  # and whoever waits for it to have worked
        self._events: deque[Event] = deque()
        self._bookkeeping: deque[Work] = deque()
        self._callers: deque[Condition] = deque()  # each wakes one: many may wait
        self._taken = False
        self._left = self._done = 0  # bookkeeping that the agent was left, and has done
        self._working = 0  # of it, what the agent is at; -1: only at events
        self.learner = RLock()  # held by whoever uses it
        self._woken = False
        self.closed = False

    # --- callers ---

    @contextmanager
    def turn(self, deadline: float) -> Iterator[None]:
        """Wait for a turn and have it; raises when it does not come in time."""
        self._take(deadline)
        try:
            yield
        finally:
            self.give_back()

    def _take(self, deadline: float) -> None:
        caller = Condition(self._lock)
        with self._lock:
            before = self._left
            self._callers.append(caller)
            self._changed()  # whoever waits for the agent wakes it
            try:
                came = caller.wait_for(
                    lambda: self.closed or self._is_turn_of(caller, before), deadline - monotonic()
                )
                if self.closed:
                    raise Unreachable("the device was closed")
                if not came or monotonic() >= deadline:
                    raise DeadlineExceeded(
                        "the deadline passed while earlier requests were running"
                    )
                self._taken = True
            finally:
                self._callers.remove(caller)
                self._changed()

    def _changed(self) -> None:
        """Wake whoever may go on now."""
        if self._callers and not self._taken:
            self._callers[0].notify()
        if self._something_to_do():
            self._agent.notify()
        self._settled.notify_all()

    def _is_turn_of(self, caller: Condition, before: int) -> bool:
        return not self._taken and self._done >= before and self._callers[0] is caller

    @property
    def wanted(self) -> bool:
        """Whether a caller waits for its turn."""
        return bool(self._callers)

    def give_back(self) -> None:
        with self._lock:
            self._taken = False
            self._changed()

    # --- the agent ---

    def post(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            self._changed()

    def leave_to_agent(self, work: Work) -> None:
        with self._lock:
            self._leave(work)
            self._changed()

    def leave(self, work: Work) -> None:
        """The same; the agent may sleep on until `wake_agent`, or until a caller waits for it."""
        with self._lock:
            self._leave(work)

    def _leave(self, work: Work) -> None:
        self._left += 1
        self._bookkeeping.append(work)

    def wake_agent(self) -> None:
        """If something is left to it."""
        with self._lock:
            self._changed()

    def next(self, seconds: float | None) -> tuple[list[Work], list[Event]]:
        """Wait for something to do, or so long; the learner is the agent's until `worked`."""
        with self._lock:
            self._agent.wait_for(self._something_to_do, seconds)
            self._woken = False
            work, events = list(self._bookkeeping), list(self._events)
            self._bookkeeping.clear()
            self._events.clear()
            self._working = len(work) or -1
        self.learner.acquire()
        return work, events

    def worked(self) -> None:
        """What `next` gave is done."""
        self.learner.release()
        with self._lock:
            self._done += max(self._working, 0)
            self._working = 0
            self._changed()

    def callers_first(self, seconds: float) -> None:
        """Where somebody has waited for the agent, wait so long, or until it has something to do:
        what it does next would take the interpreter from them."""
        with self._lock:
            if self._callers or self._taken:
                self._agent.wait_for(self._something_to_do, seconds)

    @property
    def all_learned(self) -> bool:
        """Whether nothing is left to the agent, also nothing that came while it worked."""
        with self._lock:
            return self._done == self._left

    def _something_to_do(self) -> bool:
        return bool(self._bookkeeping or self._woken or (self._events and not self._callers))

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for what the agent will have done, without having the turn."""
        with self._lock:
            return self._settled.wait_for(
                lambda: self._done == self._left and not self._working and condition(), seconds
            )

    def close(self) -> None:
        with self._lock:
            self.closed = self._woken = True
            for each in self._callers:
                each.notify()
            self._changed()
