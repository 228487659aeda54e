"""Who else has seen it: whether those who stay silent contradict a change that devices speak of.

A device tells at once what surprises it, and keeps to itself what is as expected. So nobody
contradicts single accidents, of which a fleet meets as many as it has devices, and often several
devices the same one: whatever is busy is slow for a moment in all that it is asked. But the server
answers the requests whose latencies are observed, so it knows how many were made since somebody
spoke of a change; a real one is seen by most of them, and for longer than a moment. Kept in memory.
Times come in, seconds by the server's clock. All methods belong to one thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from cans.learning import PoolKey

MOMENT = 0.25  # seconds in which several devices may have met the same accident
SETTLED = 10  # observations more than twice those that were told: nobody asks any more
MOST_POOLS = 10_000  # remembered


@dataclass
class _Case:
    """That a pool has changed, as somebody said."""

    heard: float  # when a device last had a say in it
    made: int = 1  # observations since then
    told: int = 1  # of them, that surprised who made them
    devices: set[str] = field(default_factory=set)  # who was surprised

    @property
    def contradicted(self) -> bool:
        return self.made > 2 * self.told


class Witnesses:
    """Decides who has a say in whether a pool has changed."""

    def __init__(self) -> None:
        self._cases: OrderedDict[PoolKey, _Case] = OrderedDict()

    @property
    def asked(self) -> bool:
        """Whether it matters now what is observed: mostly it does not."""
        return bool(self._cases)

    def observed(self, keys: Iterable[PoolKey]) -> None:
        """A device has observed something of these pools; it will tell if it is surprised."""
        for key in keys:
            case = self._cases.get(key)
            if case is None:
                continue
            case.made += 1
            if case.made > 2 * case.told + SETTLED:
                del self._cases[key]

    def surprised(self, key: PoolKey, device: str, now: float) -> bool:
        """A device was; whether it has a say. The first one has not, nor has one that may have met
        the same accident as another one, unless it has seen it twice."""
        case = self._cases.get(key)
        if case is None or case.contradicted:
            self._cases[key] = _Case(now, devices={device})
            if len(self._cases) > MOST_POOLS:
                self._cases.popitem(last=False)
            return False
        case.told += 1
        again = device in case.devices
        case.devices.add(device)
        if not again and now - case.heard < MOMENT:
            return False
        case.heard = now
        return True
