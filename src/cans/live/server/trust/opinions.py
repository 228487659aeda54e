"""Whose word does not fit the others': what each device says of a pool, held against the rest.

A pool is a sum, and a sum believes whoever says most: a lie that was there from the first day
looks like noise. So the server remembers what each device has said since the pool began. Where
more than half of those who spoke last agree, whoever is far from all of them is odd: the store
takes back what it said, and does not believe it there for a while (`store/shares.py`). What devices
measured is compared first: what they tell is at the level of their pool, and follows a liar's.
What is remembered here is a copy in memory, in which old words fade; after a restart it begins with
what the store has. Times come in, seconds by the server's clock. All methods belong to one thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cans.learning import PoolKey, SufficientStatistics, Upload
from cans.learning.arithmetic.arrays import MATURE
from cans.learning.plausibility import Opinion
from cans.live.store.shares import PRESENT, REST, Share

A_WORD = 2.0  # observations that a device votes with; to be found odd it must have said more
MOST_VOTERS = 9  # the last ones to speak; more would cost more and say the same
MOST_POOLS = 10_000  # remembered
RECENT = 200.0  # observations of one device; beyond them older ones count for less
LEISURE = 1.0  # seconds between two looks at a pool, however much is said of it
PAUSE = 60.0  # seconds after somebody was found odd until the next look at its pool


class Word(NamedTuple):
    """What one device has said of a pool, the last of it."""

    measured: SufficientStatistics
    told: SufficientStatistics  # at the level of the pool: over the device's pace

    def and_then(self, later: Word) -> Word:
        return Word(self.measured + later.measured, self.told + later.told).recent()

    def recent(self) -> Word:
        share = min(RECENT / self.told.weight, 1.0)
        return Word(self.measured.scaled(share), self.told.scaled(share))


@dataclass
class _Pool:
    """What was said of one pool since it began."""

    epoch: int = 0
    spoke: dict[str, float] = field(default_factory=dict)  # when each device was last believed
    said: OrderedDict[str, Word] = field(default_factory=OrderedDict)
    insisting: str = ""  # who contradicted the pool, and nobody has spoken since
    quiet_until: float = 0.0

    def others(self, device: str, now: float) -> int:
        """How many other devices feed this pool these days."""
        return sum(name != device and now - at < PRESENT for name, at in self.spoke.items())


class Opinions:
    """Remembers who says what, and finds who is odd."""

    def __init__(self) -> None:
        self._pools: OrderedDict[PoolKey, _Pool] = OrderedDict()

    def __contains__(self, key: PoolKey) -> bool:
        """Whether anything is remembered of a pool."""
        return key in self._pools

    def recall(self, key: PoolKey, shares: Mapping[str, Share]) -> None:
        """What the store has of a pool that was not remembered: of those who have not spoken
        since, it is what they said last."""
        for device, share in sorted(shares.items(), key=lambda each: -each[1].time):
            pool = self._pools.get(key) or self._remembered(key, share.epoch)
            known = pool.epoch != share.epoch or device in pool.said
            if device != REST and not known and share.said.weight > 0.0:
                pool.spoke[device] = share.time
                pool.said[device] = Word(share.said, share.said).recent()
                pool.said.move_to_end(device, last=False)

    def insists(self, device: str, key: PoolKey, now: float) -> bool:
        """Whether this device alone says that a pool has changed which others feed as well. A real
        change is seen by them, too; meanwhile its own pace follows what it measures."""
        pool = self._pools.get(key)
        return pool is not None and pool.insisting == device and pool.others(device, now) >= 2

    def heard(
        self, upload: Upload, epoch: int, ridge: float, now: float, doubted: float = 0.0
    ) -> list[str]:
        """An upload has entered its pool, which is in this epoch now and did not believe the share
        `doubted` of it. Returns who is found odd: what they said must be taken back. (Of a device
        that is not believed at all nothing needs to be heard.)"""
        pool = self._remembered(upload.key, epoch)
        if doubted > 0.0 or pool.insisting != upload.device:
            pool.insisting = upload.device if doubted > 0.0 else ""
        if upload.statistics.weight <= 0.0:
            return []
        pool.spoke[upload.device] = now
        before = pool.said.pop(upload.device, None)
        word = Word(upload.measured, upload.statistics)
        pool.said[upload.device] = word.recent() if before is None else before.and_then(word)
        while len(pool.said) > 4 * MOST_VOTERS:
            pool.said.popitem(last=False)
        if len(pool.spoke) > 4 * MOST_VOTERS:
            pool.spoke = {name: at for name, at in pool.spoke.items() if name in pool.said}
        if now < pool.quiet_until:
            return []
        pool.quiet_until = now + LEISURE
        speaking = {name: said for name, said in pool.said.items()
                    if now - pool.spoke[name] < PRESENT}  # fmt: skip
        found = _minority({name: word.measured for name, word in speaking.items()}, ridge)
        found = found or _minority({name: word.told for name, word in speaking.items()}, ridge)
        for device in found:
            del pool.spoke[device], pool.said[device]
        if found:
            pool.quiet_until = now + PAUSE
        return found

    def _remembered(self, key: PoolKey, epoch: int) -> _Pool:
        pool = self._pools.setdefault(key, _Pool(epoch))
        self._pools.move_to_end(key)
        if len(self._pools) > MOST_POOLS:
            self._pools.popitem(last=False)
        if pool.epoch != epoch:  # what was said before is not about this one
            pool.epoch = epoch
            pool.said.clear()
        return pool


def _minority(said: dict[str, SufficientStatistics], ridge: float) -> list[str]:
    """Who is far from all of a majority that agrees; the last to speak comes last."""
    present = list(said)[-MOST_VOTERS:]
    voters = [name for name in present if said[name].weight >= A_WORD]
    if len(voters) < 3:
        return []
    try:
        opinions = [Opinion.of(said[name], ridge) for name in voters]
    except np.linalg.LinAlgError:  # sums of which nothing can be made
        return []
    sums = [said[name] for name in voters]
    sigma, b = np.stack([each.sigma for each in sums]), np.stack([each.b for each in sums])
    weight = np.array([each.weight for each in sums])
    apart = np.stack([each.contradicts(sigma, b, weight) for each in opinions])
    agree = ~(apart | apart.T)
    majority = agree[agree.sum(axis=1).argmax()]
    if 2 * majority.sum() <= len(present):  # also of those who have not said enough to judge
        return []
    odd = ~(agree & majority).any(axis=1)
    enough = weight >= sigma.shape[1] + MATURE
    return [name for name, found in zip(voters, odd & enough, strict=True) if found]
