"""The server's pools: merged in the store, remembered in memory, told to whoever watches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from cans.errors import CansError, Refused, RemoteProtocolError, StoreError
from cans.learning import DeviceIdentity, Download, PoolKey, Upload
from cans.learning.arithmetic import pooling
from cans.learning.edge import PLAIN, MergeRules
from cans.learning.grouping import Family
from cans.learning.plausibility import implausible
from cans.live.clock import Clock
from cans.live.server.catalogue import Catalogue
from cans.live.server.fleet.happenings import Doubted, Happenings
from cans.live.server.fleet.happenings import Merged as UploadMerged
from cans.live.server.news import News
from cans.live.server.trust.booking import Booking
from cans.live.server.trust.claims import Claims
from cans.live.server.trust.opinions import Opinions
from cans.live.server.trust.witnesses import Witnesses
from cans.live.split import SplitModel
from cans.live.store import Judged, Merged, Refusals, Store
from cans.live.wire.messages import Known, Version

_log = logging.getLogger(__name__)
MOST_RECALLED = 20  # devices whose refused uploads are named at start-up
MOST_TOGETHER = 256  # requests whose uploads are merged in one transaction
_DAY = 86_400.0
POLL_SECONDS = 0.25  # how soon another server's merges are noticed
Result = TypeVar("Result")


class _Group:
    """Uploads of one request, or the server's own: all are merged, or none."""

    def __init__(
        self, judged: list[Judged], merged: asyncio.Future[list[Merged]], own: bool = False
    ) -> None:
        self.judged = judged
        self.merged = merged
        self.own = own

    def fail(self, error: Exception) -> None:
        self.merged.set_exception(error)
        self.merged.exception()  # whoever asked may have gone: that is no mistake of ours


class Pools:
    """All methods belong to one event loop; the store is used from one thread beside it."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        clock: Clock,
        happenings: Happenings | None = None,
        books: bool = True,
    ) -> None:
        """`books`: the server observes by itself what explains its own time alone."""
        self._happenings = happenings or Happenings()
        self._store = store
        self._catalogue = catalogue
        self._clock = clock
        self.claims = Claims()
        self.opinions = Opinions()
        # Every exchange of a device with this server tells of these.
        parts = catalogue.terms.policy.parts
        self.witnesses = Witnesses([each.name for each in parts if "link" in each.explains])
        self._asides: set[asyncio.Task[None]] = set()
        self.booking = Booking(catalogue.terms, catalogue.offered) if books else None
        self._booking: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._now: dict[PoolKey, Download] = {}
        policy = catalogue.terms.policy
        self._news = News(self._now.get, PLAIN.ridge if policy.ridge is None else policy.ridge)
        catalogue.when_removed.append(self._news.wake_all)
        self._queue: list[_Group] = []  # to be merged together, as soon as the store is free
        self._merger: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self.merged = 0  # uploads, each counted once however often it came
        self.refused = 0

    # --- merging ---

    async def merge(self, uploads: Sequence[Upload]) -> list[Merged]:
        """Durable when it returns; implausible uploads are counted, named and kept out."""
        if not uploads:
            return []
        now = self._clock.now()
        judged = [self._judge(upload, now) for upload in uploads]
        # A caller that goes away meanwhile must not keep the others from hearing of it.
        return await asyncio.shield(self._queued(judged))

    def _queued(self, judged: list[Judged], own: bool = False) -> asyncio.Future[list[Merged]]:
        group = _Group(judged, asyncio.get_running_loop().create_future(), own)
        self._queue.append(group)
        if self._merger is None or self._merger.done():
            self._merger = asyncio.create_task(self._merge_all())
        return group.merged

    def books_all(self, model: SplitModel) -> bool:
        """Whether devices need not upload what they see of this server."""
        return self.booking is not None and self.booking.books_all(model)

    def answered(self, device: str) -> None:
        """A request was: its device observes how long that took."""
        if self.witnesses.asked:
            self.witnesses.observed(self._news.pools_of(device), device)

    def timed(self, model: SplitModel, point: int, codec: str, server_ms: float) -> None:
        """A back-end of this server has run; whoever asked for it does not wait for this."""
        if self.booking is None:
            return
        uploads = self.booking.timed(model, point, codec, server_ms, self._clock.now())
        if uploads and (self._booking is None or self._booking.done()):
            self._booking = asyncio.create_task(self._book(self.booking, uploads))

    async def ran_by_itself(self, model: SplitModel, runs: Sequence[tuple[int, float]]) -> None:
        """The server has run back-ends before anyone asked for them, (choice, ms) each."""
        if self.booking is None:
            return
        uploads = self.booking.ran(model, runs, self._clock.now())
        if uploads:
            await self._book(self.booking, uploads)

    async def _book(self, booking: Booking, uploads: Sequence[Upload]) -> None:
        judged = [Judged(each, rules=self._catalogue.rules(each.key)) for each in uploads]
        try:
            merged = await self._queued(judged, own=True)
        except CansError as error:
            booking.failed(self._clock.now())
            _log.error("own timings not merged", extra={"reason": str(error)})
        else:
            booking.merged(each.download for each in merged)

    async def _merge_all(self) -> None:
        """Merge what has queued while the store was busy, in one transaction, until nothing has."""
        while self._queue:
            groups, self._queue = self._queue[:MOST_TOGETHER], self._queue[MOST_TOGETHER:]
            now = self._clock.now()
            judged = [each.judged for each in groups]
            try:
                results = await self._in_thread(self._store.merge_groups, judged, now)
            except Exception as error:
                results = [error] * len(groups)
            for group, result in zip(groups, results, strict=True):
                if isinstance(result, Exception):
                    group.fail(result)
                    continue
                for judgement, each in zip(group.judged, result, strict=True):
                    if group.own:
                        self._note(each.download)
                    else:
                        self._merged(judgement.upload, each, now)
                group.merged.set_result(result)

    def _merged(self, upload: Upload, each: Merged, now: float) -> None:
        self._note(each.download, upload.device)
        if each.repeated:
            return
        if not each.refused:
            for text in self.claims.merged(upload, each.doubted, now):
                self._happenings.add(Doubted(now, upload.device, upload.key, text))
            self._compare(upload, each, now)
        self.merged += not each.refused
        self.refused += bool(each.refused)
        count, epoch = upload.statistics.count, each.download.epoch
        self._happenings.add(
            UploadMerged(now, upload.device, upload.key, epoch, count, each.refused)
        )
        if each.refused:
            _log.warning("upload refused", extra={**_named(upload), "reason": each.refused})

    def _compare(self, upload: Upload, merged: Merged, now: float) -> None:
        """Hold what a device says against what others say of the same pool."""
        key, rules = upload.key, self._catalogue.rules(upload.key)
        if not rules.watched or (self.booking is not None and self.booking.books(key)):
            return
        if key not in self.opinions:
            self._beside(self._recall(key))
        if merged.banned:
            return
        epoch, doubted = merged.download.epoch, merged.doubted
        odd = self.opinions.heard(upload, epoch, rules.ridge, now, doubted)
        for device in odd:
            text = "it says what no other does; what it said is taken back"
            _log.warning(text, extra={"device": device, "pool": ":".join(key)})
            self._happenings.add(Doubted(now, device, key, text))
        if odd:
            self._beside(self._take_back(key, odd, now))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        self._asides.add(task := asyncio.create_task(work))
        task.add_done_callback(self._asides.discard)

    async def _recall(self, key: PoolKey) -> None:
        with suppress(CansError):
            self.opinions.recall(key, await self._in_thread(self._store.shares, key))

    async def _take_back(self, key: PoolKey, devices: list[str], now: float) -> None:
        try:
            self._note(await self._in_thread(self._store.take_back, key, devices, now))
        except CansError as error:
            _log.error("a lie cannot be taken back", extra={"reason": str(error)})

    def _judge(self, upload: Upload, now: float) -> Judged:
        try:
            rows = self._catalogue.rows(upload.key)
        except Refused as error:
            raise Refused(f"upload of {upload.device!r}: {error}", error.code) from None
        if upload.statistics.dimension != rows.shape[1]:
            # Not statistics of this pool at all; those below are only hard to believe.
            raise RemoteProtocolError(
                f"upload of {upload.device!r}: dimension {upload.statistics.dimension} "
                f"for part {upload.key.part!r}, which has {rows.shape[1]}"
            )
        reason = implausible(upload.statistics, rows, self._catalogue.terms.limits)
        reason = reason or self.claims.objection(upload, rows, now)
        trust, rules = self.claims.trust(upload.device), self._catalogue.rules(upload.key)
        if self.booking is not None and self.booking.books(upload.key):
            trust = 0.0  # counted and kept, and not believed: this server knows it better
        say = not self.opinions.insists(upload.device, upload.key, now)
        if rules.watched and self._is_surprised(upload, rules):
            say = self.witnesses.surprised(upload.key, upload.device, now) and say
        return Judged(upload, reason, trust, rules, say)

    def _is_surprised(self, upload: Upload, rules: MergeRules) -> bool:
        """Whether an upload speaks of a change of its pool, as far as that is remembered."""
        pool = self._now.get(upload.key)
        if pool is None or upload.epoch < pool.epoch:
            return False
        width = upload.statistics.dimension
        known, said = pool.statistics.pack(width), upload.statistics.pack(width)
        most = max(each.statistics.choices.shape[1] for each in (pool, upload))
        choices = pool.statistics.of_choices(most), upload.statistics.of_choices(most)
        residual = pooling.surprise(known, said, rules.ridge, width, *choices)
        return abs(residual) > pooling.SPEAKS_OF_A_CHANGE

    async def group(
        self, family: Family, identity: DeviceIdentity, whole_ms: float, moved: bool
    ) -> str:
        """With whom a device learns its front-end; empty: nobody can tell yet."""
        member = (identity.device, identity.incarnation)
        return await self._in_thread(self._store.group, family, member, whole_ms, moved) or ""

    async def recall(self) -> None:
        """Name the devices whose uploads were kept out before this server started."""
        by_device: dict[str, list[Refusals]] = {}
        for (_, device, _), each in (await self._in_thread(self._store.refused)).items():
            by_device.setdefault(device, []).append(each)
        worst = sorted(by_device.items(), key=lambda each: -sum(one.uploads for one in each[1]))
        for device, theirs in worst[:MOST_RECALLED]:
            _log.warning(
                "uploads were refused before",
                extra={"device": device, "uploads": sum(each.uploads for each in theirs),
                       "observations": sum(each.observations for each in theirs),
                       "reason": max(theirs, key=lambda each: each.time).reason},
            )  # fmt: skip

    # --- reading ---

    async def load(self, keys: Iterable[PoolKey]) -> list[Download]:
        """Pools as the store has them now."""
        wanted = list(keys)
        for key in wanted:
            self._catalogue.rows(key)
        downloads = await self._in_thread(self._store.downloads, wanted)
        for each in downloads:
            self._note(each)
        return downloads

    def newer(self, known: Iterable[tuple[PoolKey, Version]]) -> list[Download]:
        """What is remembered of these pools and newer than what is known; never waits."""
        found = ((self._now.get(key), version) for key, version in known)
        return [pool for pool, version in found if pool and (pool.epoch, pool.round) > version]

    def remembered(self) -> list[Download]:
        """Every pool that was read or merged lately, as it was then; from any thread."""
        return list(self._now.values())

    # --- telling ---

    async def watch(self, device: str, known: Known) -> AsyncIterator[list[Download]]:
        """What is new of these pools, by the rules of `learning.arithmetic.exchange`. Ends when
        their model is served no more, so that whoever watches finds out."""
        with self._news.subscribed(device, known, self._clock.now()) as subscription:
            with suppress(StoreError):  # it will be read when it is back, or something is merged
                await self.load(known)
            for each in self.newer(known.items()):
                subscription.changed(each, True, None)
            while not self._closing and all(self._catalogue.offers(key.model) for key in known):
                news = subscription.due(self._clock.now())
                if news or subscription.called():
                    yield news
                await subscription.wait(self._clock.now)

    def riding(self, device: str) -> list[Download]:
        """What a device that watches is about to be told: an answer to it takes that along."""
        return self._news.riding(device, self._clock.now())

    def watching(self) -> list[str]:
        """The devices that do."""
        return self._news.devices()

    def call(self, device: str) -> None:
        """Have a device that watches told something, even if no pool has changed."""
        self._news.call(device)

    def start(self, keep_days: float = 365.0) -> None:
        self._tasks = [asyncio.create_task(self._forget(keep_days * _DAY))]
        if self._store.shared:
            self._tasks.append(asyncio.create_task(self._poll()))

    async def _forget(self, seconds: float) -> None:
        """Forget what nobody has used for so long, now and once a day."""
        while True:
            try:
                gone = await self._in_thread(self._store.purge, self._clock.now() - seconds)
                if any(gone):
                    _log.info("forgot what nobody uses", extra=gone._asdict())
            except StoreError as error:
                _log.warning("cannot forget old pools", extra={"reason": str(error)})
            await asyncio.sleep(_DAY)

    async def _poll(self) -> None:
        """Other servers merge into the same store: look what has changed there."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                versions = await self._in_thread(self._store.versions, self._news.watched)
                known = {key: self._version(key) for key in versions}
                stale = [key for key, version in versions.items() if version > known[key]]
                if stale:
                    await self.load(stale)
            except StoreError as error:
                _log.warning("cannot look for news", extra={"reason": str(error)})

    def _version(self, key: PoolKey) -> Version:
        pool = self._now.get(key)
        return (pool.epoch, pool.round) if pool else (-1, -1)

    def _note(self, download: Download, sender: str | None = None) -> None:
        if (download.epoch, download.round) > self._version(download.key):
            self._now[download.key] = replace(download, acknowledged=None)
            self._news.changed(download, sender)

    async def _in_thread(self, function: Callable[..., Result], *words: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *words)

    def end_watches(self) -> None:
        """Let every stream of news end by itself, so that a shutdown need not wait for them."""
        self._closing = True
        self._news.wake_all()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._booking is not None:
            await self._booking
        if self.booking is not None and (rest := self.booking.rest()):
            await self._book(self.booking, rest)
        if self._merger is not None:
            await self._merger
        await asyncio.gather(*self._asides)
        self._thread.shutdown(wait=True)
        self._store.close()


def _named(upload: Upload) -> dict[str, Any]:
    """An upload in the words of a log."""
    return {
        "device": upload.device,
        "pool": ":".join(upload.key),
        "sequence": upload.sequence,
        "observations": upload.statistics.count,
    }
