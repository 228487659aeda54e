"""What was measured of a round, how long things usually take, and how late is late.

A `Stopwatch` turns measurements into what is learned. The device's own believes them; a replay
hands out recorded latencies instead, and a test whatever it needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf, isfinite
from statistics import median
from threading import Lock
from typing import NamedTuple, Protocol

from cans.learning import Choice, Latencies
from cans.learning.plausibility import Limits

Offline = Sequence[tuple[int, float]]
"""(choice, front milliseconds) of each partial run before the first round."""


class Measured(NamedTuple):
    """Milliseconds of one round, monotonic clock. None: did not take place, or not typical."""

    front_ms: float | None
    link_ms: float | None
    server_ms: float | None
    total_ms: float
    waited_ms: float | None = None  # for a worker of the server, where it tells its load

    def latencies(self) -> Latencies:
        return Latencies(self.front_ms, self.link_ms, self.server_ms)


class Stopwatch(Protocol):
    """Says what is to be learned from a round."""

    def latencies(self, choice: Choice, measured: Measured) -> Latencies: ...
    def offline(self, measured: Offline) -> Offline: ...


class Monotonic:
    """Learn what was measured."""

    def latencies(self, choice: Choice, measured: Measured) -> Latencies:
        return measured.latencies()

    def offline(self, measured: Offline) -> Offline:
        return measured


def believable(milliseconds: float | None, limits: Limits) -> bool:
    """Whether a latency may be learned: a number, and one that the server would not refuse (a
    machine that slept in the middle of a request). No limits, as for a replay, are no excuse for
    an infinity."""
    return milliseconds is not None and isfinite(milliseconds) and limits.admits(milliseconds)


def parted(
    round_trip_ms: float, compute_ms: float, queue_ms: float
) -> tuple[float | None, float | None]:
    """Link and server time of a round trip. A server that says it took longer than all of it, or
    less than nothing, is believed in neither."""
    link_ms = round_trip_ms - compute_ms - queue_ms
    possible = link_ms >= 0 and compute_ms >= 0 and queue_ms >= 0
    return (link_ms, compute_ms + queue_ms) if possible else (None, None)


def round_trip_of(probes: Sequence[float], sizes: Sequence[int]) -> float:
    """Milliseconds of an exchange of nothing, from exchanges of these sizes in bytes; one alone
    says no more than that it is no longer.

    >>> round_trip_of([12.0, 26.0], [8192, 65536])
    10.0
    """
    if len(probes) < 2:
        return probes[0] if probes else 0.0
    (small, large), (a, b) = probes[:2], sizes[:2]
    return max(small - (large - small) * a / (b - a), 0.0)


class InFlight:
    """Requests of one device that are on their way at the same time, and what each would have
    taken alone. Thread-safe: they end in threads of their own.

    Two requests share the link and the server. The second to be sent arrives when the first has:
    what lies between the two arrivals is what it took itself, and the round trip, which nobody
    shares, comes on top. Behind the first it waits at the server, too.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._left: deque[float] = deque(maxlen=32)  # when replies were here, less server time

    def sent(self) -> int:
        """One more is on its way; returns how many are ahead of it."""
        with self._lock:
            self._count += 1
            return self._count - 1

    def ended(self) -> None:
        with self._lock:
            self._count -= 1

    @property
    def none(self) -> bool:
        return self._count == 0

    def alone(
        self, ready: float, end: float, link_ms: float, compute_ms: float, queue_ms: float,
        ahead: int, round_trip_ms: float,
    ) -> tuple[float, float]:  # fmt: skip
        """Milliseconds on the link and at the server, without what earlier ones cost it. Times are
        by the performance counter, in seconds."""
        left = end - (compute_ms + queue_ms) / 1e3
        with self._lock:
            before = max((each for each in self._left if each < left), default=-inf)
            self._left.append(left)
        if ahead and before > ready:
            link_ms = min(link_ms, round_trip_ms + (left - before) * 1e3)
        return link_ms, compute_ms + max(queue_ms - ahead * compute_ms, 0.0)


class LocalTimes:
    """How long this device takes to finish by itself, from what it has seen; for deadlines only."""

    def __init__(self) -> None:
        self._whole: float | None = None  # seconds
        self._usual: deque[float] = deque(maxlen=9)  # of whole runs
        self._rest: dict[int, float] = {}
        self._usual_rest: dict[int, deque[float]] = {}

    def ran_whole(self, seconds: float) -> None:
        self._whole = _smooth(self._whole, seconds)
        self._usual.append(seconds)

    @property
    def whole(self) -> float:
        """Seconds that a whole run usually takes, if not disturbed: three in four of the last took
        as long or longer. 0 if nothing is known."""
        return sorted(self._usual)[len(self._usual) // 4] if self._usual else 0.0

    def ran_rest(self, point: int, seconds: float) -> None:
        self._rest[point] = _smooth(self._rest.get(point), seconds)
        self._usual_rest.setdefault(point, deque(maxlen=9)).append(seconds)

    def usual_rest(self, point: int) -> float:
        """Seconds that it usually takes from a point to the end. After a wait a processor is slower
        than in one go; but what took far longer than a whole run was an accident.

        >>> times = LocalTimes()
        >>> times.ran_whole(0.1)
        >>> times.usual_rest(0)
        0.1
        >>> times.ran_rest(0, 0.12)
        >>> times.usual_rest(0)
        0.12
        """
        known = self._usual_rest.get(point)
        return min(median(known), 1.5 * self.whole) if known and self._usual else self.whole

    def rest(self, point: int) -> float:
        """Seconds from a point to the end; at most those of a whole run, 0 if nothing is known."""
        known = self._rest.get(point, self._whole)
        return known if known is not None else 0.0


def _smooth(before: float | None, now: float) -> float:
    # Quick to believe in slowness, slow to forget it: a missed deadline costs more than a wait.
    return now if before is None or now > before else before + 0.1 * (now - before)


# --- how late is late ---

SAFETY = 1.25  # local runs are given so much more than they took before
CLOSE = 1.05  # ... or so much, where more would leave a server no time to answer
RUNS = 2.0  # local runs that an answer may take at most, also without a server, ...
CAREFUL = 1.75  # ... and so many where replies leave room for it
ROOM = 1.1  # ... that is, so much more than they usually take
MARGIN = 0.02  # seconds to put an answer together before a deadline, and ...
SHARE = 0.05  # ... of the time there is, because a busy machine wakes its threads late
LEAST = 0.001  # seconds that a server is given in any case
ALLOWANCE = 0.02  # seconds that come on top of those runs
WAKING = 0.008  # seconds of that for waking up
LINGER = 1.0  # seconds that a reply is still learned from when this device was first


MOST = 0.75  # of replies: a server that this device beats so often is slow, and does not hang


class RemoteTimes:
    """What each choice took from request to reply, and from when on a reply is late."""

    def __init__(self, window: int = 64) -> None:
        self._window = window
        self._took: dict[int, deque[tuple[float, bool]]] = {}  # seconds, and whether it was lost
        self._lost: deque[bool] = deque(maxlen=window)  # the last replies of all choices

    def took(self, row: int, seconds: float, lost: bool = False, typical: bool = True) -> None:
        """`lost`: this device had answered by itself when the reply came; not `typical`: the first
        of a back-end, which was built for it."""
        self._lost.append(lost)
        if typical:
            self._took.setdefault(row, deque(maxlen=self._window)).append((seconds, lost))

    @property
    def server_hangs(self) -> bool:
        """Whether a reply that this device has beaten says how long the server hung, not how long a
        choice takes: unless it beats most of them."""
        return sum(self._lost) <= MOST * len(self._lost)

    def _counted(self, row: int) -> list[float]:
        took, hangs = self._took.get(row, ()), self.server_hangs
        return sorted(each for each, lost in took if not (hangs and lost))

    def usual(self, row: int) -> float:
        """Seconds that all but one of the last n took; of few, which may have been cold, half of
        them; 0: too few to tell. A server that is given less is not late, it is as it always was.

        >>> times = RemoteTimes()
        >>> for seconds in (0.01, 0.03, 0.9, 0.02, 0.02):
        ...     times.took(0, seconds)
        >>> times.usual(0)
        0.03
        """
        took = self._counted(row)
        left_out = 1 + 4 // max(len(took), 1)
        return took[-1 - left_out] if len(took) > left_out else 0.0

    def late(self, row: int) -> float:
        """Seconds after which a reply is late: beyond all of the last n by a factor that shrinks
        with n. Of replies that are alike, one in n + 1 is later than the n before it.

        >>> times = RemoteTimes()
        >>> times.late(0)
        inf
        >>> for _ in range(20):
        ...     times.took(0, 0.1)
        >>> round(times.late(0), 3)
        0.112
        >>> times.took(0, 5.0, lost=True)  # the server hung
        >>> round(times.late(0), 3)
        0.112
        """
        took = self._counted(row)
        return took[-1] * (1.0 + 2.0 / len(took)) + 0.002 if took else inf


class Patience(NamedTuple):
    """Seconds from now."""

    hedge_after_s: float  # then this device begins to finish by itself
    give_up_after_s: float  # then a reply is of no use any more, not even to learn from

    @classmethod
    def of(cls, left: float, spent: float, whole: float, rest: float | None, usual: float,
           late: float, usual_rest: float = inf) -> Patience:  # fmt: skip
        """How long to wait for a reply, all in seconds: `left` until the deadline, `spent` since
        the request began, `whole` and `rest` of local runs (rest None: none is possible), what
        replies to this choice stay within, nearly always, and are late after, and what the rest
        takes usually (as long as a whole run where that is not known)."""
        if rest is None:
            return cls(inf, max(left, LEAST))
        by_deadline = left - MARGIN - SHARE * left - SAFETY * rest
        allowed = ALLOWANCE - WAKING - spent
        # A deadline fears the slowest run; this is for the usual one.
        bound = RUNS * whole + allowed - CLOSE * min(rest, whole)
        if usual < bound < inf:
            typical = min(rest, whole if usual_rest == inf else usual_rest)
            careful = CAREFUL * whole + allowed - SAFETY * typical
            bound = min(bound, max(careful, ROOM * usual))
        # A choice that often takes longer than that was made although it does: its reply is late
        # by its own measure. To hedge it sooner would be to run most requests twice, which a model
        # that takes no time here would do for ever; whether to choose it is the learner's business.
        # One that was hardly ever taken has no measure of its own.
        hedge = late if 0.0 < usual >= bound else min(late, bound)
        hedge = max(min(hedge, by_deadline), LEAST)
        return cls(hedge, max(min(left, hedge + rest + LINGER), hedge + LEAST))
