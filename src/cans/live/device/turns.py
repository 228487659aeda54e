"""Whose turn it is to use the learner: one at a time, callers before the agent's events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from time import monotonic

from cans.errors import DeadlineExceeded, Unreachable
from cans.live.device.servers.contact import Event

Work = Callable[[], None]


class Turns:
    """Who may use the learner now: bookkeeping first, then callers as they came, then events."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._events: deque[Event] = deque()
        self._bookkeeping: deque[Work] = deque()
        self._callers: deque[object] = deque()
        self._taken = False
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
        caller = object()
        with self._condition:
            self._callers.append(caller)
            try:
                came = self._condition.wait_for(
                    lambda: self.closed or self._is_turn_of(caller), deadline - monotonic()
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
                self._condition.notify_all()

    def _is_turn_of(self, caller: object) -> bool:
        return not (self._taken or self._bookkeeping) and self._callers[0] is caller

    @property
    def wanted(self) -> bool:
        """Whether a caller waits for its turn."""
        return bool(self._callers)

    def give_back(self) -> None:
        with self._condition:
            self._taken = False
            self._condition.notify_all()

    # --- the agent ---

    def post(self, event: Event) -> None:
        with self._condition:
            self._events.append(event)
            self._condition.notify_all()

    def leave_to_agent(self, work: Work) -> None:
        with self._condition:
            self._bookkeeping.append(work)
            self._condition.notify_all()

    def next(self, seconds: float | None) -> tuple[list[Work], list[Event]]:
        """Wait for something to do, or so long; the turn is the agent's until `give_back`."""
        with self._condition:
            self._condition.wait_for(self._something_to_do, seconds)
            self._condition.wait_for(lambda: not self._taken)
            self._taken, self._woken = True, False
            work, events = list(self._bookkeeping), list(self._events)
            self._bookkeeping.clear()
            self._events.clear()
            return work, events

    @property
    def all_learned(self) -> bool:
        """Whether nothing is left to the agent, also nothing that came while it worked."""
        with self._condition:
            return not self._bookkeeping

    def _something_to_do(self) -> bool:
        if self._taken:
            return False
        return bool(self._bookkeeping or self._woken or (self._events and not self._callers))

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for what the agent will have done, without having the turn."""
        with self._condition:
            return self._condition.wait_for(
                lambda: not (self._taken or self._bookkeeping) and condition(), seconds
            )

    def close(self) -> None:
        with self._condition:
            self.closed = self._woken = True
            self._condition.notify_all()
