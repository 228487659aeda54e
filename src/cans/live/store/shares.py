"""What each device has said of a pool since it began, kept apart from the total.

A pool is a sum, and a sum cannot tell afterwards whose word is in it. So a watched pool keeps the
exact sums of each of its senders beside what devices are told: of what it measured, not of what it
brought to the level of the pool, which follows a liar's. Whoever is found to lie is taken back
whole, whatever came in between and in whatever order: the pool is read again from what the others
have measured, each counting for no more than all others together. At most `MOST_SENDERS` are kept
apart; those that were quiet longest are folded into a rest, whose word stays. Times are seconds by
the server's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from cans.learning import PoolKey, SufficientStatistics, Upload
from cans.learning.edge import PoolContents, read_again

MOST_SENDERS = 64
"""Devices whose word is kept apart in one pool ..."""
FOLDED_AT_ONCE = 16
"""... and how many of them are folded when there are more: not one for every newcomer."""
NEWCOMER = 32.0
"""Observations that count for a pool which knows fewer itself."""
PRESENT = 60.0
"""Seconds for which a device counts as present after it has spoken."""
FIRST_BAN, LONGEST_BAN = 600.0, 86_400.0
"""Seconds for which a device that was taken back is not believed: doubled each time, up to a day.
"""
REST = ""
"""The name under which long quiet senders are kept together; no device has it."""


@dataclass(frozen=True)
class Share:
    """One device's word in one pool."""

    epoch: int  # of the pool; a share of an earlier one says nothing of this one
    said: SufficientStatistics  # as it measured it; exact, however much of it was believed
    time: float  # when it last spoke
    until: float = 0.0  # it is not believed before, as long as others speak
    banned: float = 0.0  # seconds that the last ban lasted


class ShareRows(Protocol):
    """What these rules read and write, inside the transaction that has locked the pool."""

    def share(self, key: PoolKey, device: str) -> Share | None: ...
    def put_share(self, key: PoolKey, device: str, share: Share | None) -> None: ...
    def share_times(self, key: PoolKey) -> dict[str, tuple[int, float]]: ...


def is_banned(rows: ShareRows, key: PoolKey, device: str, now: float) -> bool:
    """Whether a device is not believed about a pool now. Where nobody else speaks any more it is:
    there must be somebody to learn from."""
    share = rows.share(key, device)
    if share is None or now >= share.until:
        return False
    others = (time for name, (_, time) in rows.share_times(key).items() if name != device)
    return any(now - time < PRESENT for time in others)


def note(rows: ShareRows, upload: Upload, pool: PoolContents, now: float) -> None:
    """An upload has entered its pool, which is this now: remember whose word it was."""
    key, device = upload.key, upload.device
    before = rows.share(key, device)
    if before is None:
        before = Share(-1, upload.measured, now)
    known = before.epoch == pool.epoch
    said = before.said + upload.measured if known else upload.measured
    rows.put_share(key, device, replace(before, epoch=pool.epoch, said=said, time=now))
    if not known:
        _fold_the_quiet(rows, key, pool)


def _fold_the_quiet(rows: ShareRows, key: PoolKey, pool: PoolContents) -> None:
    times = rows.share_times(key)
    times.pop(REST, None)
    if len(times) <= MOST_SENDERS:
        return
    rest = rows.share(key, REST)
    if rest is None or rest.epoch != pool.epoch:
        rest = Share(pool.epoch, SufficientStatistics.zero(pool.statistics.dimension), 0.0)
    quiet = sorted(times, key=times.__getitem__)[: len(times) - MOST_SENDERS + FOLDED_AT_ONCE - 1]
    for device in quiet:  # those of ended epochs come first
        share = rows.share(key, device)
        if share is not None and share.epoch == pool.epoch:
            believed = share.said.scaled(_cap(share.said.weight, pool.statistics.weight))
            rest = replace(rest, said=rest.said + believed, time=max(rest.time, share.time))
        rows.put_share(key, device, None)
    rows.put_share(key, REST, rest)


def take_back(
    rows: ShareRows, key: PoolKey, pool: PoolContents, liars: Iterable[str], now: float
) -> PoolContents:
    """The pool without what these devices have said since it began; they are banned."""
    nothing = SufficientStatistics.zero(pool.statistics.dimension)
    for device in liars:
        share = rows.share(key, device) or Share(-1, nothing, now)
        banned = min(max(2 * share.banned, FIRST_BAN), LONGEST_BAN)
        rows.put_share(key, device, Share(pool.epoch, nothing, now, now + banned, banned))
    shares = (rows.share(key, device) for device in rows.share_times(key))
    said = [each.said for each in shares if each is not None and each.epoch == pool.epoch]
    everything = sum((each.weight for each in said), 0.0)
    kept = (each.scaled(_cap(each.weight, everything - each.weight)) for each in said)
    return read_again(pool, sum(kept, nothing))


def _cap(weight: float, others: float) -> float:
    """The share of a device's word that counts: no more than all others together say."""
    most = max(others, NEWCOMER)
    return most / max(weight, most)
