"""`Store`: the rules of merging, once, over any place that can do a transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from cans.errors import CansError, Refused
from cans.learning import Download, PoolKey, Upload
from cans.learning.edge import (
    PLAIN,
    MergeRules,
    PoolContents,
    Received,
    Sender,
    download_of,
    merged,
    restarted,
)
from cans.learning.grouping import Family, Span, placed
from cans.live.store.buffered import Buffered
from cans.live.store.shares import NEWCOMER, Share, ShareRows, is_banned, note, take_back

MOST_POOLS = 100_000
"""More pools than any fleet has types and networks: beyond it someone is inventing names."""
MOST_MEMBERS = 100_000
"""More devices than any fleet has."""
MOST_GAPS = 4096
"""Sequence numbers of one sender that may be ahead of a missing one."""
CONTRADICTED = 0.5
"""The share of an upload that its pool does not believe, from which on it is a contradiction."""
MOST_COUNTED = 2**62
"""Where a count stops: what a refused upload claims is not to be trusted, and must fit a column."""


class Judged(NamedTuple):
    """An upload and the server's verdict on it."""

    upload: Upload
    refused: str = ""  # why it must not enter the pool; it is counted and acknowledged all the same
    trust: float = 1.0  # the share of it that its sender is believed; the rest is doubted
    rules: MergeRules = PLAIN  # of its pool
    say: bool = True  # whether it is heard about a change of the pool


class Merged(NamedTuple):
    """A pool after an upload, and what became of the upload."""

    download: Download
    refused: str = ""  # why it was kept out; empty: it is in the pool
    repeated: bool = False  # it had come before, and has changed nothing now
    doubted: float = 0.0  # the share of it that the pool itself did not believe
    banned: bool = False  # its sender was taken back lately, and is not believed about this pool


@dataclass(frozen=True)
class StoredPool:
    """A pool with what was kept out of it."""

    pool: PoolContents
    refused: int = 0  # observations in refused uploads


@dataclass(frozen=True)
class Refusals:
    """What was kept out of a pool of one sender's uploads, and why the last was."""

    uploads: int
    observations: int  # as the uploads claim
    sequence: int  # of the last
    reason: str
    time: float


class Purged(NamedTuple):
    """How much was forgotten."""

    pools: int
    senders: int


@dataclass(frozen=True)
class Account:
    """Where the observations of one pool are, for the law of conservation."""

    key: PoolKey
    pool: PoolContents
    refused: int

    @property
    def total(self) -> int:
        """Observations that ever arrived: in the pool, of ended epochs, refused."""
        retired = 0 if self.pool.retired is None else self.pool.retired.count
        return self.pool.statistics.count + retired + self.refused


Member = tuple[str, str]
"""A device of a family: its name and its incarnation."""


class PoolRows(ShareRows, Protocol):
    """What merging reads and writes. A pool that was read stays locked until the end."""

    def pool(self, key: PoolKey) -> StoredPool | None: ...
    def put_pool(self, key: PoolKey, stored: StoredPool) -> None: ...
    def received(self, sender: Sender) -> Received: ...
    def put_received(self, sender: Sender, received: Received) -> None: ...
    def refusals(self, sender: Sender) -> Refusals | None: ...
    def put_refusals(self, sender: Sender, refusals: Refusals) -> None: ...


class Transaction(PoolRows, Protocol):
    """One all-or-nothing change. A family of groups whose spans were read stays locked, too."""

    def spans(self, family: Family) -> tuple[Span, ...]: ...
    def put_span(self, family: Family, number: int, span: Span) -> None: ...
    def member(self, family: Family, member: Member) -> int | None: ...
    def put_member(self, family: Family, member: Member, number: int) -> None: ...


class Store(ABC):
    """Pools that survive. Methods may be called from any thread, and block."""

    shared = False
    """Other processes may change the pools: look again from time to time."""

    def merge(self, uploads: Sequence[Judged], time: float) -> list[Merged]:
        """Merge uploads, all or none; durable when this returns. A repeat changes nothing."""
        # Always in the same order, so that two servers never wait for each other's locks.
        order = sorted(range(len(uploads)), key=lambda i: uploads[i].upload.key)
        merged: dict[int, Merged] = {}
        with self._transaction() as transaction:
            rows = Buffered(transaction)
            for i in order:
                merged[i] = _take_in(rows, uploads[i], time)
            rows.write()
        return [merged[i] for i in range(len(uploads))]

    def merge_groups(
        self, groups: Sequence[Sequence[Judged]], time: float
    ) -> list[list[Merged] | Exception]:
        """Merge several groups of uploads, each all or none, with one wait for the disk: a group
        that cannot be merged costs the others a transaction of their own, and nothing else."""
        if len(groups) > 1:
            with suppress(Refused):
                merged = self.merge([each for group in groups for each in group], time)
                found = iter(merged)
                return [[next(found) for _ in group] for group in groups]
        results: list[list[Merged] | Exception] = []
        for group in groups:
            try:
                results.append(self.merge(group, time))
            except CansError as error:
                results.append(error)
        return results

    def group(
        self, family: Family, member: Member, whole_ms: float, moved: bool = False
    ) -> str | None:
        """The name of a device's group: the one it has, unless it has `moved`, or the one that its
        whole-model time puts it in. None: it has none, and no time is known (0)."""
        with self._transaction() as transaction:
            spans = transaction.spans(family)
            number = transaction.member(family, member)
            if number is None or (moved and whole_ms > 0):
                if not whole_ms > 0:
                    return None
                number, grown = placed(spans, whole_ms)
                transaction.put_span(family, number, grown[number])
                transaction.put_member(family, member, number)
        return family.name(number)

    def reset(self, key: PoolKey) -> Download:
        """Start a pool anew: the next epoch."""
        with self._transaction() as transaction:
            stored = transaction.pool(key)
            if stored is None:
                raise Refused(f"no such pool: {key}", "NOT_FOUND")
            stored = replace(stored, pool=restarted(stored.pool))
            transaction.put_pool(key, stored)
        return download_of(key, stored.pool)

    def take_back(self, key: PoolKey, devices: Iterable[str], time: float) -> Download:
        """Take back what these devices have said of a pool since it began, and do not believe them
        for a while, longer each time."""
        with self._transaction() as transaction:
            stored = transaction.pool(key)
            if stored is None:
                raise Refused(f"no such pool: {key}", "NOT_FOUND")
            stored = replace(stored, pool=take_back(transaction, key, stored.pool, devices, time))
            transaction.put_pool(key, stored)
        return download_of(key, stored.pool)

    def shares(self, key: PoolKey) -> dict[str, Share]:
        """What each device has said of a pool in its present epoch, as far as it is kept apart."""
        with self._transaction() as transaction:
            stored = transaction.pool(key)
            found = {name: transaction.share(key, name) for name in transaction.share_times(key)}
        epoch = -1 if stored is None else stored.pool.epoch
        return {name: each for name, each in found.items() if each and each.epoch == epoch}

    @abstractmethod
    def downloads(self, keys: Iterable[PoolKey]) -> list[Download]:
        """Those of the pools that exist, as they are now."""

    @abstractmethod
    def versions(self, keys: Iterable[PoolKey]) -> dict[PoolKey, tuple[int, int]]:
        """(epoch, round) of those that exist: cheap, to see what has changed."""

    @abstractmethod
    def accounts(self) -> list[Account]:
        """Every pool and what was kept out of it."""

    @abstractmethod
    def refused(self) -> dict[Sender, Refusals]:
        """Whose uploads were kept out, of which pool."""

    @abstractmethod
    def snapshot(self, tables: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of these tables of the layout, all of the same moment."""

    @abstractmethod
    def purge(self, before: float) -> Purged:
        """Forget pools into which nothing was merged since, and senders that were not heard."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Transaction]:
        """Commit when left normally, undo when left by an exception."""


def _take_in(transaction: PoolRows, judged: Judged, time: float) -> Merged:
    upload, refused = judged.upload, judged.refused
    key, dimension = upload.key, upload.statistics.dimension
    stored = transaction.pool(key) or StoredPool(PoolContents.empty(dimension))
    if stored.pool.statistics.dimension != dimension:
        raise Refused(
            f"statistics of dimension {dimension} for a pool of "
            f"{stored.pool.statistics.dimension}: {key}",
            "INVALID_ARGUMENT",
        )
    sender = (key, upload.device, upload.incarnation)
    before = transaction.received(sender)
    if upload.sequence in before:
        # The verdict of then counts, not that of now: the limits may have changed in between. One
        # upload of a sender is on its way at a time, so that only its last one is asked about.
        known = transaction.refusals(sender)
        then = known.reason if known is not None and known.sequence == upload.sequence else ""
        return Merged(download_of(key, stored.pool, upload.sequence), then, repeated=True)
    doubted, banned = 0.0, False
    if refused:
        received = before.including(upload.sequence)
        count = min(stored.refused + upload.statistics.count, MOST_COUNTED)
        stored = replace(stored, refused=count)
        transaction.put_refusals(sender, _one_more(transaction.refusals(sender), judged, time))
    else:
        banned = judged.rules.watched and is_banned(transaction, key, upload.device, time)
        judged = judged._replace(trust=0.0) if banned else judged
        pool, received, doubted = _believed(stored.pool, before, judged, time)
        if judged.rules.watched and judged.trust > 0.0 and pool.round > stored.pool.round:
            note(transaction, upload, pool, time)
        stored = replace(stored, pool=pool)
    if len(received.beyond) > MOST_GAPS:
        raise Refused(f"device {upload.device} skips sequence numbers", "OUT_OF_RANGE")
    transaction.put_pool(key, stored)
    transaction.put_received(sender, received)
    download = download_of(key, stored.pool, upload.sequence)
    return Merged(download, refused, doubted=doubted, banned=banned)


def _believed(
    pool: PoolContents, received: Received, judged: Judged, time: float
) -> tuple[PoolContents, Received, float]:
    """The pool with as much of an upload as it believes itself, and of that the share that its
    sender is trusted with; and the share that it did not believe. The rest is doubted.

    However many observations an upload claims, it counts for no more than all that the pool knew
    before, and for one observation if the pool does not believe it. A sender that is not trusted
    wholly, or that was the last to speak of a change, has no say in whether a pool has changed: its
    evidence is left out of the alarm, which a single upload after a pause never sounds.
    """
    upload, most = judged.upload, max(pool.statistics.weight, NEWCOMER)
    trust = min(judged.trust, most / max(upload.statistics.weight, most))
    say = judged.say and trust >= 1.0
    heard = pool if say else replace(pool, alarm=(0.0, 0.0))
    after, received = merged(heard, received, upload, time, judged.rules)
    weight = upload.statistics.weight
    if after.epoch != pool.epoch or after.round == pool.round or weight <= 0.0:
        return after, received, 0.0
    added = after.statistics - pool.statistics
    doubted = 1.0 - added.weight / weight
    if doubted > CONTRADICTED:
        trust = min(trust, 1.0 / max(weight, 1.0))
    if not say:
        after = replace(after, alarm=pool.alarm)
    if trust >= 1.0:
        return after, received, doubted
    kept = added.scaled(trust)  # the count is exact, whatever is believed
    rest = replace(added - kept, count=0)
    everything_doubted = rest if after.doubted is None else after.doubted + rest
    statistics = pool.statistics + kept
    after = replace(after, statistics=statistics, doubted=everything_doubted)
    return after, received, doubted


def _one_more(known: Refusals | None, judged: Judged, time: float) -> Refusals:
    upload, reason = judged.upload, judged.refused
    uploads, observations = (known.uploads, known.observations) if known else (0, 0)
    claimed = min(observations + upload.statistics.count, MOST_COUNTED)
    return Refusals(uploads + 1, claimed, upload.sequence, reason, time)
