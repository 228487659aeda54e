"""Who is told of a pool, when, and what it costs the server; uploads that are merged together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from cans.errors import Refused
from cans.learning import Download, PoolKey, SufficientStatistics, Upload
from cans.learning.arithmetic.exchange import NEWS_SECONDS
from cans.live.clock import Clock
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.server import news
from cans.live.server.catalogue import Catalogue
from cans.live.server.news import WOKEN_AT_ONCE, News
from cans.live.server.pools import Pools
from cans.live.store import Judged, MemoryStore, Merged, open_store
from tests.live.faults import wait_until
from tests.live.process import eager
from tests.live.running import running, terms
from tests.live.toy import example, toy
from tests.live.values import KEY, statistics, upload


class Desk:
    """A `News` with pools to change."""

    def __init__(self) -> None:
        self.pools: dict[PoolKey, Download] = {}
        self.news = News(self.pools.get, 0.01)

    def change(self, sender: str | None, *, epoch: int = 0, more: float = 1e-9) -> Download:
        before = self.pools.get(KEY)
        total = statistics(1, 50) if before is None else before.statistics
        grown = total + statistics(1, 50).scaled(more)
        pool = Download(KEY, epoch, grown, 1 if before is None else before.round + 1)
        self.pools[KEY] = pool
        self.news.changed(pool, sender)
        return pool


def rounds(pools: Sequence[Download]) -> list[int]:
    return [each.round for each in pools]


def test_many_watchers_are_woken_a_few_at_a_time() -> None:
    """A request that comes meanwhile does not wait for all of their messages."""

    async def main() -> None:
        desk, count = Desk(), 3 * WOKEN_AT_ONCE + 1
        with ExitStack() as stack:
            streams = [
                stack.enter_context(desk.news.subscribed(f"w{i}", {KEY: (0, 0)}, 0.0))
                for i in range(count)
            ]
            desk.change("other")
            assert sum(each._wake.is_set() for each in streams) == WOKEN_AT_ONCE
            for each in streams:
                await asyncio.wait_for(each._wake.wait(), 30)

    asyncio.run(main())


def test_an_answer_takes_along_what_its_device_waits_to_be_told() -> None:
    async def main() -> None:
        desk, count = Desk(), WOKEN_AT_ONCE + 2
        with ExitStack() as stack:
            streams = [
                stack.enter_context(desk.news.subscribed(f"w{i}", {KEY: (0, 0)}, 0.0))
                for i in range(count)
            ]
            assert desk.news.riding("w0", 0.0) == []  # there is no news
            desk.change("other")
            waiting = [each for each in streams if not each._wake.is_set()]
            first, second = waiting
            assert rounds(desk.news.riding(first.device, 0.0)) == [1]
            assert desk.news.riding(first.device, 0.0) == []  # once
            assert first.due(0.0) == []  # nor as a message
            last = desk.change("other", epoch=1)
            assert rounds(desk.news.riding(second.device, 0.0)) == [last.round]  # as it is by now
            woken = next(each for each in streams if each not in waiting)
            assert desk.news.riding("nobody", 0.0) == []
            assert rounds(woken.due(0.0)) == [last.round]

    asyncio.run(main())


def test_a_stream_whose_news_went_with_an_answer_looks_again_with_its_next_token() -> None:
    async def main() -> None:
        desk, now = Desk(), NEWS_SECONDS + 1.0
        with ExitStack() as stack:
            streams = [
                stack.enter_context(desk.news.subscribed(f"w{i}", {KEY: (0, 0)}, 0.0))
                for i in range(WOKEN_AT_ONCE + 1)
            ]
            desk.change("other")
            for each in streams:
                each.due(now)
                each._wake.clear()
            assert all(each.may_hear() for each in streams)
            waits = [asyncio.create_task(each.wait(lambda: now)) for each in streams]
            await asyncio.sleep(0)
            change = desk.change("other")  # no news, but each may hear of one such change
            last = next(each for each in streams if not each._wake.is_set())
            assert rounds(desk.news.riding(last.device, now)) == [change.round]
            await asyncio.wait_for(waits[streams.index(last)], 5)  # and waits for its token now
            assert not last.may_hear()
            for each in waits:
                each.cancel()

    asyncio.run(main())


def test_news_comes_at_once_and_the_rest_now_and_then() -> None:
    async def main() -> None:
        desk = Desk()
        with desk.news.subscribed("watcher", {KEY: (0, 0)}, 0.0) as stream:
            desk.change("other")
            assert rounds(stream.due(0.0)) == [1]  # the first edition
            for _ in range(50):
                last = desk.change("other")
                assert stream.due(1.0) == []
            assert desk.news._hungry == {}  # a merge looks at nobody who may not be told
            assert rounds(stream.due(NEWS_SECONDS + 1.0)) == [last.round]
            last = desk.change("other", epoch=1)
            assert rounds(stream.due(NEWS_SECONDS + 1.0)) == [last.round]
            last = desk.change("other", epoch=1, more=100.0)
            assert rounds(stream.due(NEWS_SECONDS + 1.0)) == [last.round]
        assert desk.news.watched == []

    asyncio.run(main())


def test_a_pool_that_was_there_before_its_watchers_is_no_news_to_them() -> None:
    async def main() -> None:
        desk = Desk()
        first = desk.change("other")  # nobody watches
        with desk.news.subscribed("watcher", {KEY: (0, first.round)}, 0.0) as stream:
            desk.change("other")
            assert stream.due(0.0) == []
            last = desk.change("other", more=100.0)
            assert rounds(stream.due(0.0)) == [last.round]

    asyncio.run(main())


def test_nobody_is_told_of_what_they_sent() -> None:
    async def main() -> None:
        desk = Desk()
        with desk.news.subscribed("watcher", {KEY: (0, 0)}, 0.0) as stream:
            desk.change("watcher")
            assert stream.due(0.0) == []
            desk.change("watcher")
            assert stream.due(0.0) == []
            assert rounds([desk.change("other")]) == rounds(stream.due(NEWS_SECONDS))

    asyncio.run(main())


def test_a_stream_waits_until_there_is_something(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk()
        with desk.news.subscribed("watcher", {KEY: (0, 0)}, 0.0) as stream:
            waiting = asyncio.create_task(stream.wait(lambda: 0.0))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            desk.change("other")
            await asyncio.wait_for(waiting, 5)

    asyncio.run(main())


def who(device: Device) -> str:
    return device._experience.state.identity.device


async def restart(pools: Pools, key: PoolKey) -> None:
    pools._note(await pools._in_thread(pools._store.reset, key))


def test_a_device_learns_news_from_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is woken here: that a pool starts anew can only be told with an answer."""
    monkeypatch.setattr(news, "WOKEN_AT_ONCE", 0)
    monkeypatch.setattr(news, "WAKING_PAUSE_S", 3600.0)
    with (
        running(toy(), terms=terms("cans", fresh_pools=True)) as server,
        Device(server.address, toy(), state=tmp_path, hooks=Hooks(force=0)) as device,
    ):
        pools = server.server.pools
        wait_until(lambda: who(device) in pools.watching())
        device.settle()
        key = next(each.key for each in pools.remembered() if each.key.part == "link")
        asyncio.run_coroutine_threadsafe(restart(pools, key), server._loop).result(20)
        assert device._experience.known[key][0] == 0
        device.run(example())
        wait_until(lambda: device._experience.known[key][0] == 1)


# --- one transaction for what has queued ---


def test_groups_are_merged_together_and_a_bad_one_alone_fails(tmp_path: Path) -> None:
    for store in (MemoryStore(), open_store(f"sqlite:{tmp_path / 'a.sqlite'}")):
        good = [[Judged(upload("a", 0)), Judged(upload("a", 1))], [Judged(upload("b", 0))]]
        first, second = store.merge_groups(good, 5.0)
        assert isinstance(first, list)
        assert isinstance(second, list)
        assert [each.download.round for each in (*first, *second)] == [1, 2, 3]
        skipping = [Judged(upload("c", number)) for number in range(2, 4200)]
        bad, fine = store.merge_groups([skipping, [Judged(upload("d", 0))]], 5.0)
        assert isinstance(bad, Refused)
        assert isinstance(fine, list)
        assert sum(each.total for each in store.accounts()) == 4 * upload("a", 0).statistics.count
        store.close()


def test_uploads_that_queue_wait_for_the_disk_once() -> None:
    class Counting(MemoryStore):
        commits = 0

        def merge(self, uploads: Sequence[Judged], time: float) -> list[Merged]:
            self.commits += 1
            return super().merge(uploads, time)

    async def main() -> None:
        model, store = toy(), Counting()
        catalogue = Catalogue([model], eager())
        pools = Pools(store, catalogue, Clock())
        key = PoolKey(model.digest, model.table.version, "fedlinucb-dw", "back", "everyone")

        def one(device: str) -> Awaitable[list[Merged]]:
            observed = SufficientStatistics.of(catalogue.rows(key)[0], 5.0)
            return pools.merge([Upload(device, "1", key, 0, 0, observed)])

        results = await asyncio.gather(*(one(str(i)) for i in range(100)))
        assert all(len(each) == 1 for each in results)
        assert pools.merged == 100
        assert store.commits <= 3
        await pools.close()

    asyncio.run(main())
