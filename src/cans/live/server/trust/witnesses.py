"""Who else has seen it: whether those who stay silent contradict a change that devices speak of.

A device tells at once what surprises it, and keeps to itself what is as expected. So nobody
contradicts single accidents, of which a fleet meets as many as it has devices, and often several
devices the same one: whatever is busy is slow for a moment in all that it is asked. But the server
answers the requests whose latencies are observed, so it knows who made any since somebody spoke of
a change; a real one is seen by most of them, and for longer than a moment. Kept in memory.
Times come in, seconds by the server's clock. All methods belong to one thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from cans.learning import PoolKey

MOMENT = 0.25  # seconds in which several devices may have met the same accident
FORGOTTEN = 60.0  # seconds after which what was said last is another story
SETTLED = 10  # devices more than twice those that were surprised: nobody asks any more
MOST_POOLS = 10_000  # remembered


@dataclass
class _Case:
    """That a pool has changed, as somebody said. Every device has one vote, however much it sends:
    nobody can drown what the others see."""

    heard: float  # when a device last had a say in it
    surprised: set[str]  # devices
    observing: set[str] = field(default_factory=set)  # that have observed something since then

    def contradicted_by_more_than(self, others: int) -> bool:
        return len(self.observing | self.surprised) > 2 * len(self.surprised) + others


class Witnesses:
    """Decides who has a say in whether a pool has changed."""

    def __init__(self, seen: Collection[str]) -> None:
        """`seen`: the parts of which the server knows when a device observes something."""
        self._seen = frozenset(seen)
        self._cases: OrderedDict[PoolKey, _Case] = OrderedDict()
        self._asked: set[PoolKey] = set()  # those of them that others may contradict

    @property
    def asked(self) -> bool:
        """Whether it matters now what is observed: mostly it does not."""
        return bool(self._asked)

    def observed(self, keys: Iterable[PoolKey], device: str) -> None:
        """A device has observed something of these pools, or may have; it will tell if it is
        surprised."""
        for key in self._asked.intersection(keys):
            case = self._cases[key]
            case.observing.add(device)
            if case.contradicted_by_more_than(SETTLED):
                self._close(key)

    def surprised(self, key: PoolKey, device: str, now: float) -> bool:
        """A device was; whether it has a say. The first one has not, nor has one that may have met
        the same accident as another one, unless it has seen it twice."""
        case = self._cases.get(key) or _Case(now, set())
        again = device in case.surprised
        case.surprised.add(device)
        forgotten = now - case.heard > FORGOTTEN
        if key not in self._cases or forgotten or case.contradicted_by_more_than(0):
            self._open(key, _Case(now, {device}))
            return False
        if not again and now - case.heard < MOMENT:
            return False
        case.heard = now
        return True

    def _open(self, key: PoolKey, case: _Case) -> None:
        self._cases[key] = case
        if key.part in self._seen:
            self._asked.add(key)
        if len(self._cases) > MOST_POOLS:
            self._close(next(iter(self._cases)))

    def _close(self, key: PoolKey) -> None:
        del self._cases[key]
        self._asked.discard(key)
