"""A simulated edge server with few workers: first come, first served."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from cans.learning.congestion import Load, LoadMeter, expected_wait

WORK_S, WORK_SOONER_S = 10.0, 1.0
"""Between requests that are sent for the server's sake, of all devices: so long, and while devices
take it for well again."""


class Job(NamedTuple):
    """A request at the server."""

    number: int
    expected_ms: float  # what the server thinks it takes
    service_ms: float  # what it will take
    since: float  # when it came, seconds


class Server:
    """Time, in seconds, comes from whoever drives it."""

    def __init__(
        self, workers: float, joined: int, tell_s: float = 0.2, queue_limit: float = inf
    ) -> None:
        """The load that is told in passing is at most `tell_s` old; only a quote is of this moment.
        Of more than `queue_limit` requests that wait or run the last is refused."""
        self.workers = workers
        self._tell_s, self._queue_limit = tell_s, queue_limit
        self._joined = joined
        self._meter = LoadMeter(workers)
        self._queue: deque[Job] = deque()
        self._running: dict[int, tuple[Job, float]] = {}  # and when it began
        self._announced: dict[int, float] = {}  # number -> expected milliseconds
        self._told = Load(joined=joined, workers=workers)
        self._told_at = self._worked_at = -inf

    def announce(self, number: int, expected_ms: float) -> None:
        """A request is on its way; whoever asks from now on hears of it."""
        self._announced[number] = expected_ms

    def grants_work(self, time: float, every_s: float) -> bool:
        """One device of the fleet may send work for the server's sake, once in so many seconds."""
        if time - self._worked_at < min(max(every_s, WORK_SOONER_S), WORK_S):
            return False
        self._worked_at = time
        return True

    def refuses(self, number: int) -> bool:
        """Whether a request that arrives now is turned away."""
        full = len(self._queue) + len(self._running) >= self._queue_limit
        if full:
            self._announced.pop(number, None)
        return full

    def reach(self, job: Job) -> Job | None:
        """A request arrives; returns it if it starts at once."""
        self._announced.pop(job.number, None)
        self._meter.arrived(job.since)
        self._queue.append(job)
        return self.start_next(job.since)

    def finish(self, number: int, time: float) -> None:
        del self._running[number]
        self._meter.running(time, len(self._running))

    def start_next(self, time: float) -> Job | None:
        """The next request that a free worker takes, if there are both."""
        if not self._queue or len(self._running) >= self.workers:
            return None
        job = self._queue.popleft()
        self._running[job.number] = (job, time)
        self._meter.running(time, len(self._running))
        return job

    def wait_ms(self, time: float) -> float:
        """Until a request that came now would be started, if all goes as expected."""
        running = (
            max(job.expected_ms - 1e3 * (time - began), 0.0)
            for job, began in self._running.values()
        )
        queued = (*(job.expected_ms for job in self._queue), *self._announced.values())
        return expected_wait(running, queued, self.workers)

    def load(self, time: float) -> Load:
        """As it is at this moment."""
        inside = len(self._queue) + len(self._running) + len(self._announced)
        return self._meter.load(time, self.wait_ms(time), self._joined, inside)

    def told(self, time: float) -> Load:
        """As everybody was last told."""
        if time - self._told_at >= self._tell_s:
            self._told, self._told_at = self.load(time), time
        return self._told
