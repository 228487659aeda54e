"""What other threads tell the agent's: welcomes, answers to uploads, news of pools."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Condition
from typing import Any

from cans.errors import CansError
from cans.learning import Upload
from cans.live.wire.messages import PoolUpdate, Welcome


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


@dataclass(frozen=True)
class News:
    pools: tuple[PoolUpdate, ...]


@dataclass(frozen=True)
class Probed:
    milliseconds: Sequence[float]  # of each size, as far as there were answers


@dataclass(frozen=True)
class WatchEnded:
    server: int
    error: CansError | None


Event = Welcomed | NotWelcomed | Synced | NotSynced | News | Probed | WatchEnded


class Turn(Enum):
    """What the agent's thread is to do next."""

    JOB = "a request, or a task"
    AFTER = "the bookkeeping of a request that its caller's thread has answered"
    TEND = "look at events and at the clock"
    END = "stop"


class Inbox:
    """Events and jobs for the agent's thread, and whose turn it is to use the learner.

    The turn is the agent's, or a caller's whose request found the agent idle: it is answered in the
    caller's own thread, which spares two changes of thread, and the turn is handed over together
    with the bookkeeping.
    """

    def __init__(self) -> None:
        self._condition = Condition()
        self._events: deque[Event] = deque()
        self._jobs: deque[Any] = deque()
        self._after: Callable[[], None] | None = None
        self._taken = False
        self._closed = False

    def put(self, event: Event) -> None:
        with self._condition:
            self._events.append(event)
            self._condition.notify_all()

    def put_job(self, job: Any) -> bool:
        """False: closed, nobody would do it."""
        with self._condition:
            if self._closed:
                return False
            self._jobs.append(job)
            self._condition.notify_all()
            return True

    def events(self) -> list[Event]:
        with self._condition:
            found = list(self._events)
            self._events.clear()
            return found

    def wait_for_event(self, seconds: float) -> bool:
        with self._condition:
            return bool(self._condition.wait_for(lambda: self._events, seconds))

    # --- turns ---

    def try_take(self) -> bool:
        """Take the turn if nobody has it and nobody waits for it."""
        with self._condition:
            free = not (self._taken or self._jobs or self._closed)
            self._taken = self._taken or free
            return free

    def give_back(self) -> None:
        with self._condition:
            self._taken = False
            self._condition.notify_all()

    def hand_over(self, after: Callable[[], None]) -> None:
        """Give the turn to the agent's thread, with something to do first."""
        with self._condition:
            self._after = after
            self._condition.notify_all()

    def next_turn(self, seconds: float | None) -> tuple[Turn, Any]:
        """Wait for something to do, or so long; the turn is the caller's until `give_back`."""
        with self._condition:
            self._condition.wait_for(self._something_to_do, seconds)
            self._condition.wait_for(lambda: self._after is not None or not self._taken)
            if self._after is not None:
                after, self._after = self._after, None
                return Turn.AFTER, after
            self._taken = True
            if self._jobs:
                return Turn.JOB, self._jobs.popleft()
            return (Turn.END if self._closed else Turn.TEND), None

    def _something_to_do(self) -> bool:
        if self._after is not None:
            return True
        return not self._taken and bool(self._jobs or self._events or self._closed)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> list[Any]:
        """No more jobs; returns those that were never begun."""
        with self._condition:
            self._closed = True
            left = list(self._jobs)
            self._jobs.clear()
            self._condition.notify_all()
            return left
