"""A second way to an answer, begun when the first takes too long; the first answer wins.

A device waits for its server for as long as it could still finish by itself in time. Then it begins
to, in a thread of its own, and goes on waiting. That thread is not woken for a request that is
answered in time: it looks by itself when the earliest hedge it knows of is due, and finds that one
called off. Such a request pays for two assignments under a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from math import inf
from threading import Condition, Thread
from time import monotonic
from typing import Any, Generic, Self, TypeVar

from cans.errors import DeadlineExceeded
from cans.live.device.deadline import Abandonment

Result = TypeVar("Result")


class Hedge(Generic[Result]):
    """Work that is begun at its time, unless it is taken over or dropped before."""

    def __init__(self, hedger: Hedger, at: float, work: Callable[[], Result]) -> None:
        self._hedger = hedger
        self.at = at  # on the monotonic clock
        self.work = work
        self.done: Future[Result] | None = None  # None: not begun
        self.dropped = False  # nobody waits for it any more

    def result(self, deadline: float) -> Result:
        """The other way has failed: do it here and now, or wait for it if it was begun."""
        if not self._hedger.disarm(self):
            return self.work()
        assert self.done is not None
        try:
            return self.done.result(max(deadline - monotonic(), 0.0))
        except TimeoutError:
            raise DeadlineExceeded("this device could not finish in time") from None

    def drop(self) -> bool:
        """The other way was first. Was this one begun? It then stops after the present block."""
        self.dropped = True
        return self._hedger.disarm(self)

    def is_dropped(self) -> bool:
        return self.dropped

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()


class Hedger:
    """The thread that begins hedges; one is armed at a time."""

    def __init__(self, abandonment: Abandonment) -> None:
        self._abandonment = abandonment
        self._condition = Condition()  # only the thread waits for it
        self._armed: Hedge[Any] | None = None
        self._running: Hedge[Any] | None = None
        self._looks_at = inf  # when the thread looks by itself
        self._thread: Thread | None = None
        self._closed = False

    def arm(self, seconds: float, work: Callable[[], Result]) -> Hedge[Result]:
        """Begin this work after so many seconds."""
        hedge = Hedge(self, monotonic() + seconds, work)
        with self._condition:
            self._armed = hedge
            if hedge.at < self._looks_at:
                self._looks_at = hedge.at
                self._condition.notify()
            if self._thread is None:
                self._thread = Thread(target=self._main, name="cans-hedge", daemon=True)
                self._thread.start()
        return hedge

    def disarm(self, hedge: Hedge[Any]) -> bool:
        """Begin it no more; True: it was begun already."""
        with self._condition:
            if self._armed is hedge:
                self._armed = None
            return hedge.done is not None

    def rest(self, until: float) -> None:
        """Wait for a dropped hedge to stop, so that the next run has the processor for itself."""
        running = self._running
        if running is not None and running.done is not None:
            wait([running.done], max(until - monotonic(), 0.0))

    def close(self) -> None:
        with self._condition:
            self._closed = True
            if self._running is not None:
                self._running.dropped = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    # --- the thread ---

    def _main(self) -> None:
        while (hedge := self._next_due()) is not None:
            assert hedge.done is not None
            self._abandonment.begin(hedge.is_dropped)
            try:
                hedge.done.set_result(hedge.work())
            except BaseException as error:
                hedge.done.set_exception(error)
            finally:
                self._abandonment.end()
                self._running = None

    def _next_due(self) -> Hedge[Any] | None:
        """Wait for the time of a hedge; None: closed."""
        with self._condition:
            while not self._closed:
                now, armed = monotonic(), self._armed
                if armed is not None and armed.at <= now:
                    armed.done = Future()
                    self._armed, self._running = None, armed
                    self._looks_at = -inf  # it will look after this one, without being told
                    return armed
                if armed is not None:
                    self._looks_at = armed.at
                elif self._looks_at <= now:
                    self._looks_at = inf
                self._condition.wait(None if self._looks_at == inf else self._looks_at - now)
        return None
