"""Everyone at once: what waiting costs, and what a request costs those who wait behind it.

The server part learns the time of computing alone. How long a request will wait is no property of a
choice: the server knows it, and tells (`Load`). A choice's score carries the wait as known, and a
*toll*: the waiting that its server time causes to others. Without it every device does what is best
for itself until the gain of having a server is eaten up by waiting.

No clock in here: time, in seconds, is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heapreplace
from math import exp, inf, sqrt
from typing import NamedTuple

import numpy as np

from cans.learning.arithmetic.arrays import Array

HORIZON_S, ASKING_HORIZON_S = 4.0, 1.0
"""Utilisation and arrivals are those of about the last so many seconds; whether the server is in
use at all, and worth a question, is seen sooner."""

SPARE = 0.05
"""The least share of a server that is counted as free: a toll is never infinite."""

RETURNING = 0.5
"""The share of those inside who come back behind a request that comes now: all of them where
devices hardly pause, none where all wait for the slowest."""

DELAYED = 0.6
"""The share of a delay that is lost to the fleet. Who waits longer also asks again later, and finds
the server emptier for it; of open arrivals it would be all."""

LONG = 3.0
"""A wait of so many times the usual one and a request's own time is no accident of the moment."""

ALIKE = 0.5
"""The wait behind requests that take equally long, as a share of that behind exponential ones
(Pollaczek and Khinchin): those of one back-end do."""

ASK_ABOVE = 0.3
"""Below this utilisation nobody asks before sending: there is nobody to collide with."""

CLEARLY = 0.15
"""A choice is left for one that is better by more than this share, or by more than waiting adds."""

RESTLESS, MOST_RESTLESS, RESTLESS_KEPT = 0.08, 0.24, 0.998
"""With every change of its choice a device asks for so much more before it changes again, up to a
limit, and for less with every inference: where choices are near each other a fleet settles instead
of alternating. So much where the server is in use for `ASK_ABOVE` of its time or more, and less
where it is used less."""

SETTLED, HEEDED, TWICE = 30, 0.1, 2.0
"""A device that has stayed with its choice for so many inferences leaves it only in this share of
the cases in which nothing but waiting speaks against it, unless staying costs twice as much: all
who ask during a burst hear of it, and need not all make way."""

OVERRUN_SHARE, OVERRUN_KEPT = 0.3, 0.95
"""How much the last wait counts in a device's overrun, and how much of that is left after an
inference without the server."""


class Load(NamedTuple):
    """What a server tells of itself."""

    wait_ms: float = 0.0  # until a request that came now would be started
    utilisation: float = 0.0  # share of the workers' time that is used
    arrivals: float = 0.0  # requests per second
    joined: int = 1  # devices of the fleet
    inside: int = 0  # requests that wait, run or are announced
    workers: float = 1.0  # requests that run at once
    recent: float = 0.0  # utilisation of the last second or so


def aged(load: Load, seconds: float) -> Load:
    """What is left of a load that was told so long ago: a server in use says so again, and one that
    is silent has emptied its queue. As the averages themselves forget.

    >>> aged(Load(wait_ms=80.0, utilisation=0.5, joined=9, inside=4), 600.0).wait_ms < 1e-9
    True
    """
    left, soon = exp(-max(seconds, 0.0) / HORIZON_S), exp(-max(seconds, 0.0) / ASKING_HORIZON_S)
    return load._replace(
        wait_ms=float(drained(load, np.array(1e3 * max(seconds, 0.0)))),
        utilisation=load.utilisation * left,
        arrivals=load.arrivals * left,
        inside=int(load.inside * left),
        recent=load.recent * soon,
    )


def drained(load: Load, after_ms: Array) -> Array:
    """What is left of the wait so many milliseconds later: workers do a millisecond of it in each,
    and new requests bring as much as the server is used."""
    spare = max(1.0 - load.utilisation, SPARE)
    result: Array = np.maximum(load.wait_ms - spare * after_ms, 0.0)
    return result


def usual_wait(load: Load) -> float:
    """Milliseconds that requests wait on average at this utilisation (M/D/c, by Sakasegawa's
    approximation), and no longer than behind all the others.

    >>> round(usual_wait(Load(utilisation=0.5, arrivals=50.0, joined=9)), 6)
    5.0
    """
    if load.arrivals <= 0.0 or load.workers == inf:
        return 0.0
    spare = max(1.0 - load.utilisation, SPARE)
    crowding = ALIKE * load.utilisation ** (sqrt(2.0 * (load.workers + 1.0)) - 1.0) / spare
    return float(_one_request(load) * min(crowding, load.joined - 1.0))


def _one_request(load: Load) -> float:
    """Milliseconds by which a request lengthens the wait of those behind it."""
    return 1e3 * load.utilisation / load.arrivals if load.arrivals > 0.0 else 0.0


def not_of_this_moment(load: Load) -> Load:
    """What to count with of a load that was told a while ago: the usual wait. The one of that
    moment has passed, and whoever goes by it moves as all others do who heard the same. Unless it
    was so long that it cannot have passed."""
    usual = usual_wait(load)
    lasts = load.wait_ms > LONG * (usual + _one_request(load))
    return load if lasts else load._replace(wait_ms=usual)


def expected_wait(running: Iterable[float], queued: Iterable[float], workers: float) -> float:
    """Milliseconds until a request that came now would be started, first come, first served:
    behind what is still to be done of those that run, and behind those that wait.

    >>> expected_wait([30.0, 10.0], [5.0, 5.0], 2), expected_wait([30.0], [], 2)
    (20.0, 0.0)
    """
    if workers == inf:
        return 0.0
    free = list(running)
    free += [0.0] * max(int(workers) - len(free), 0)
    heapify(free)
    for milliseconds in queued:
        heapreplace(free, free[0] + milliseconds)
    return free[0]


def toll(service: Array, load: Load) -> Array:
    """What requests of so many milliseconds of server time cost the others, in milliseconds each.

    M/G/c: a millisecond of service delays everyone who comes before the queue has emptied again,
    which takes (wait + service / 2) / (1 - utilisation). That is nobody who is inside already,
    unless it is served and asks again meanwhile (`RETURNING`).
    """
    if load.workers == np.inf:
        return np.zeros_like(service)
    spare = max(1.0 - load.utilisation, SPARE)
    behind = 1e-3 * load.arrivals * (load.wait_ms + 0.5 * service) / spare
    others = max(load.joined - 1.0 - (1.0 - RETURNING) * load.inside, 0.0)
    result: Array = DELAYED * service / load.workers * np.minimum(behind, others)
    return result


def wait_at_arrival(load: Load, after_ms: Array) -> Array:
    """The wait that requests find which are at the server so many milliseconds from now. What is
    worked off until then others bring again: no less than the usual wait is left."""
    result: Array = np.maximum(drained(load, after_ms), min(load.wait_ms, usual_wait(load)))
    return result


def worth_asking(
    load: Load, service_ms: float, round_trip_ms: float, gain_ms: float, newcomer: bool = False
) -> bool:
    """Whether to ask for the present wait before choosing: only a server that others use is worth
    it, and only where that saves more than the question takes. It saves what the wait exceeds the
    gain of having a server by; waits are taken for exponential beyond those who find it free. A
    `newcomer` reckons with others that begin at this moment, too: half of them come before it."""
    used = max(load.utilisation, load.recent, 0.5 * (load.inside >= load.workers or newcomer))
    if used < ASK_ABOVE or load.workers == inf or load.joined <= 1 or gain_ms <= 0.0:
        return False
    spare = max(1.0 - used, SPARE)
    typical = ALIKE * service_ms / (load.workers * spare)
    if newcomer:
        typical = max(typical, 0.5 * (load.joined - 1.0) * service_ms / load.workers)
    return typical > 0.0 and used * typical * exp(-gain_ms / typical) > round_trip_ms


class Habit:
    """What a device did last in a crowd, and how readily it leaves that.

    Waits vary from one moment to the next; who follows each of them makes them vary more.
    """

    def __init__(self) -> None:
        self.taken: int | None = None
        self.restless = 0.0  # the more, the oftener and the shorter ago it changed
        self.stayed = 0  # inferences since then

    def took(self, row: int) -> None:
        """An inference was made with this choice."""
        if self.taken is None or row == self.taken:
            self.stayed += 1
            self.restless *= RESTLESS_KEPT
        else:
            self.stayed = 0
            self.restless = min(self.restless + RESTLESS, MOST_RESTLESS)
        self.taken = row

    def choose(self, best: int, scores: Array, charge: Array, load: Load, uniform: float) -> int:
        """The choice of last time, unless the best is clearly better; `uniform` is a draw from
        [0, 1). Where nobody uses the server there is no `charge`, and the best is taken."""
        before = self.taken
        if before is None or before == best:
            return best
        clearly = min(CLEARLY * scores[best], max(charge[before], charge[best]))
        clearly += min(load.utilisation / ASK_ABOVE, 1.0) * self.restless * scores[best]
        if scores[before] <= scores[best] + clearly:
            return before
        idle = scores - charge  # what they would take if nobody waited
        burst = idle[before] <= idle[best] and scores[before] <= TWICE * scores[best]
        return before if burst and self.stayed >= SETTLED and uniform >= HEEDED else best


class Overrun:
    """By how much a device waited longer than it was told, lately.

    What is announced after a question may arrive before what asked. A device that is passed again
    and again, because its front-end takes long, finds out here, and stays away if that costs more
    than it gains; then it forgets, and tries again.
    """

    def __init__(self) -> None:
        self.milliseconds = 0.0

    def waited(self, told_ms: float, waited_ms: float) -> None:
        self.milliseconds += OVERRUN_SHARE * (waited_ms - told_ms - self.milliseconds)
        self.milliseconds = max(self.milliseconds, 0.0)

    def stayed(self) -> None:
        """An inference was made without the server."""
        self.milliseconds *= OVERRUN_KEPT


class LoadMeter:
    """Utilisation and arrivals of a server, as averages that forget."""

    def __init__(self, workers: float, horizon_s: float = HORIZON_S) -> None:
        self.workers = workers
        self._horizon = horizon_s
        self._time = 0.0
        self._busy = 0.0  # workers that run now
        self._utilisation = self._recent = 0.0
        self._arrivals = 0.0

    def _pass_to(self, time: float) -> None:
        elapsed = max(time - self._time, 0.0)
        left, soon = exp(-elapsed / self._horizon), exp(-elapsed / ASKING_HORIZON_S)
        self._time = max(time, self._time)
        share = self._busy / self.workers
        self._utilisation = share + left * (self._utilisation - share)
        self._recent = share + soon * (self._recent - share)
        self._arrivals *= left

    def arrived(self, time: float) -> None:
        self._pass_to(time)
        self._arrivals += 1.0 / self._horizon

    def running(self, time: float, busy: int) -> None:
        """So many workers run from now on."""
        self._pass_to(time)
        self._busy = busy

    def load(self, time: float, wait_ms: float, joined: int, inside: int) -> Load:
        self._pass_to(time)
        used, recent = self._utilisation, self._recent
        return Load(wait_ms, used, self._arrivals, joined, inside, self.workers, recent)
