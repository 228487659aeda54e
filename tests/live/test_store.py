"""One contract, every store: in memory, SQLite, and a real PostgreSQL."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cans.errors import InputError, Refused, StoreError
from cans.learning import (
    EdgeAggregator,
    Hyperparameters,
    SufficientStatistics,
    Upload,
    policy_named,
)
from cans.learning.edge import rules_of
from cans.learning.grouping import SPAN, Family
from cans.live.store import Judged, Refusals, Store, open_store
from tests.live.conftest import drop_tables
from tests.live.postgres import Postgres
from tests.live.values import KEY, statistics, upload

OTHER = KEY._replace(part="front", scope="group:rpi5")


FAMILY = Family("model", "1x3x224x224", "CPUExecutionProvider")


def test_groups_are_found_by_speed_and_kept(opener: Callable[[], Store]) -> None:
    store = opener()
    assert store.group(FAMILY, ("unknown", "0"), 0.0) is None
    found = [
        store.group(FAMILY, (f"d{i}", "0"), ms) for i, ms in enumerate((20.0, 300.0, 25.0, 310.0))
    ]
    assert found == ["auto-1", "auto-2", "auto-1", "auto-2"]
    other = FAMILY._replace(label="rpi5")
    assert store.group(other, ("d0", "0"), 300.0) == "rpi5/auto-1"
    store.close()
    store = opener()
    assert store.group(FAMILY, ("d1", "0"), 0.0) == "auto-2"
    assert store.group(FAMILY, ("d1", "0"), 20.0) == "auto-2", "it keeps its group"
    assert store.group(FAMILY, ("d1", "0"), 20.0, moved=True) == "auto-1"
    assert store.group(FAMILY, ("d1", "0"), 0.0) == "auto-1"
    assert store.group(FAMILY, ("d1", "1"), 310.0) == "auto-2", "another life, another machine"
    store.close()


def test_devices_that_join_two_servers_at_once_find_the_same_groups(
    opener: Callable[[], Store], request: pytest.FixtureRequest
) -> None:
    """Forty devices of three speeds through two connections: no group twice, none too wide."""
    shared = "postgres" in request.node.callspec.id
    stores = [opener(), opener()] if shared else [opener()] * 2
    speeds = [(f"d{i}", (20.0, 90.0, 400.0)[i % 3] * (1 + 0.004 * i)) for i in range(40)]

    def join(each: tuple[int, tuple[str, float]]) -> str | None:
        number, (device, ms) = each
        return stores[number % 2].group(FAMILY, (device, "0"), ms)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(join, enumerate(speeds)))
    groups = {name: {i % 3 for i, each in enumerate(found) if each == name} for name in set(found)}
    assert sorted(groups) == ["auto-1", "auto-2", "auto-3"]
    assert sorted(len(kinds) for kinds in groups.values()) == [1, 1, 1]
    with stores[0]._transaction() as transaction:
        spans = transaction.spans(FAMILY)
    assert len(spans) == 3
    assert all(span.width <= SPAN for span in spans)
    for each in dict.fromkeys(stores):
        each.close()


def total(store: Store) -> int:
    return sum(account.total for account in store.accounts())


def test_merging_equals_the_aggregator(store: Store) -> None:
    edge = EdgeAggregator(policy_named(KEY.policy))
    for i in range(20):
        each = upload(f"device-{i % 3}", i // 3, seed=i, key=KEY if i % 2 else OTHER)
        expected = edge.merge(each, 7.0)
        ((download, *_),) = store.merge([Judged(each)], 7.0)
        assert download.statistics.equals(expected.statistics)
        assert download.key == expected.key
        assert (download.epoch, download.round) == (expected.epoch, expected.round)
        assert (download.acknowledged, download.time) == (each.sequence, expected.time)


def test_pools_start_anew_as_the_aggregator_does(store: Store) -> None:
    policy = policy_named("cans")
    edge, rules = EdgeAggregator(policy), rules_of(policy, Hyperparameters(), "link")
    key = KEY._replace(policy="cans", part="link", scope="network:lab")
    for i in range(60):
        each = Upload("a", "first", key, 0, i, statistics(i, 1) if i < 30 else slow(i))
        expected = edge.merge(each, 10.0 * i)
        ((download, *_),) = store.merge([Judged(each, rules=rules)], 10.0 * i)
        assert download.statistics.equals(expected.statistics)
        assert (download.epoch, download.round) == (expected.epoch, expected.round)
    assert sum(account.total for account in store.accounts()) == 60
    (account,) = store.accounts()
    kept = edge.pools[key]
    assert account.pool.alarm == kept.alarm
    assert (account.pool.doubted is None) is (kept.doubted is None)
    if account.pool.doubted is not None and kept.doubted is not None:
        assert account.pool.doubted.equals(kept.doubted)


def slow(seed: int) -> SufficientStatistics:
    """An observation of a link that has become ten times slower."""
    rng = np.random.default_rng(seed)
    return SufficientStatistics.of(rng.random(2), 1000.0)


def test_a_repeat_changes_nothing_and_is_acknowledged(store: Store) -> None:
    (first,) = store.merge([Judged(upload())], 0.0)
    again = store.merge([Judged(upload()), Judged(upload())], 0.0)
    assert [first.repeated, *(each.repeated for each in again)] == [False, True, True]
    assert [each.download.acknowledged for each in again] == [0, 0]
    assert all(e.download.statistics.equals(first.download.statistics) for e in again)
    assert total(store) == upload().statistics.count


def test_any_order_gives_the_same_pool(store: Store) -> None:
    uploads = [upload(f"d{i % 4}", i // 4, seed=i) for i in range(16)]
    uploads += random.Random(3).choices(uploads, k=16)
    random.Random(1).shuffle(uploads)
    for each in uploads:
        store.merge([Judged(each)], 0.0)
    expected = sum((statistics(i, 1 + i % 4) for i in range(16)), SufficientStatistics.zero(2))
    (download,) = store.downloads([KEY])
    assert download.statistics.equals(expected)


def test_refused_uploads_are_counted_apart_and_acknowledged_once(store: Store) -> None:
    store.merge([Judged(upload())], 0.0)
    bad = upload("bad", 0, seed=2)
    for repeated in (False, True):
        (merged,) = store.merge([Judged(bad, "nonsense")], 5.0)
        assert merged.download.acknowledged == 0
        assert (merged.refused, merged.repeated) == ("nonsense", repeated)
    (account,) = store.accounts()
    assert account.refused == bad.statistics.count
    assert account.pool.statistics.equals(upload().statistics)
    worse = upload("bad", 1, seed=3)
    store.merge([Judged(worse, "more of it")], 6.0)
    both = bad.statistics.count + worse.statistics.count
    assert store.refused() == {(KEY, "bad", "first"): Refusals(2, both, 1, "more of it", 6.0)}


def test_a_repeat_is_told_the_verdict_of_then(store: Store) -> None:
    """Other limits since the first time do not make a merged upload refused, or the reverse."""
    store.merge([Judged(upload("a", 0))], 0.0)
    (merged,) = store.merge([Judged(upload("a", 0), "too slow by now")], 0.0)
    assert (merged.refused, merged.repeated) == ("", True)
    store.merge([Judged(upload("b", 0), "too slow")], 0.0)
    (merged,) = store.merge([Judged(upload("b", 0))], 0.0)
    assert (merged.refused, merged.repeated) == ("too slow", True)
    assert store.refused().keys() == {(KEY, "b", "first")}
    assert total(store) == 2


def test_absurd_claims_are_counted_without_overflow(store: Store) -> None:
    for sequence in range(4):
        lie = replace(upload("bad", sequence).statistics, count=2**62)
        store.merge([Judged(replace(upload("bad", sequence), statistics=lie), "a lie")], 0.0)
    (account,) = store.accounts()
    (refusals,) = store.refused().values()
    assert account.refused == refusals.observations == 2**62
    assert refusals.uploads == 4


def test_all_or_none(store: Store) -> None:
    store.merge([Judged(upload())], 0.0)
    other_size = upload("b", 0)
    other_size = type(other_size)("b", "first", KEY, 0, 0, statistics(1, 1, dimension=5))
    with pytest.raises(Refused):
        store.merge([Judged(upload("c", 0, key=OTHER)), Judged(other_size)], 0.0)
    assert total(store) == upload().statistics.count


def test_a_reset_retires(store: Store) -> None:
    store.merge([Judged(upload("a", 0, seed=1))], 0.0)
    assert store.reset(KEY).epoch == 1
    ((late, *_),) = store.merge([Judged(upload("b", 0, seed=2))], 0.0)
    assert late.epoch == 1
    assert late.statistics.count == 0
    (account,) = store.accounts()
    assert account.pool.retired is not None
    assert account.total == account.pool.retired.count == 2 + 3
    with pytest.raises(Refused):
        store.reset(OTHER)


def test_versions_tell_what_changed(store: Store) -> None:
    assert store.versions([KEY]) == {}
    assert store.versions([]) == {}
    store.merge([Judged(upload())], 0.0)
    assert store.versions([KEY, OTHER]) == {KEY: (0, 1)}


def test_a_closed_store_opens_with_all_it_had(opener: Callable[[], Store]) -> None:
    store = opener()
    store.merge([Judged(upload("a", 0)), Judged(upload("a", 0, key=OTHER))], 0.0)
    store.merge([Judged(upload("b", 0), "nonsense")], 0.0)
    before, refused = store.accounts(), store.refused()
    store.close()
    store = opener()
    assert store.refused() == refused != {}
    assert {a.key: a.total for a in store.accounts()} == {a.key: a.total for a in before}
    store.merge([Judged(upload("a", 0))], 0.0)  # a repeat, also after the restart
    assert {a.key: a.total for a in store.accounts()} == {a.key: a.total for a in before}
    store.close()


def test_many_threads(store: Store) -> None:
    uploads = [upload(f"d{i % 5}", i // 5, seed=i) for i in range(60)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda each: store.merge([Judged(each)], 0.0), uploads + uploads))
    assert total(store) == sum(each.statistics.count for each in uploads)


def test_two_servers_on_one_postgres(postgres: Postgres) -> None:
    drop_tables(postgres)
    stores = [open_store(postgres.url) for _ in range(2)]
    uploads = [upload(f"d{i}", 0, seed=i, key=KEY if i % 3 else OTHER) for i in range(40)]
    with ThreadPoolExecutor(4) as threads:
        list(
            threads.map(
                lambda pair: stores[pair[0] % 2].merge([Judged(pair[1])], 0.0),
                list(enumerate(uploads)) + list(enumerate(uploads, start=1)),
            )
        )
    assert total(stores[0]) == total(stores[1]) == sum(each.statistics.count for each in uploads)
    for each in stores:
        each.close()


def test_postgres_restarted_under_a_store(postgres: Postgres) -> None:
    drop_tables(postgres)
    store = open_store(postgres.url)
    store.merge([Judged(upload("a", 0))], 0.0)
    postgres.stop("immediate")
    with pytest.raises(StoreError, match="not reachable"):
        store.merge([Judged(upload("a", 1))], 0.0)
    postgres.start()
    store.merge([Judged(upload("a", 1))], 0.0)
    assert total(store) == 2
    store.close()


def test_one_owner_of_a_sqlite_file(tmp_path: Path) -> None:
    path = tmp_path / "pools.sqlite"
    store = open_store(str(path))
    with pytest.raises(StoreError, match="another server owns"):
        open_store(f"sqlite:{path}")
    store.close()
    open_store(str(path)).close()


def test_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown store"):
        open_store("redis://somewhere")
    with pytest.raises(StoreError, match="cannot open"):
        open_store(str(tmp_path))
    with pytest.raises(
        StoreError, match=r"not reachable: .*port 1 failed: Connection refused [^\n]*$"
    ):
        open_store("postgresql://nobody@127.0.0.1:1/none")
    newer = tmp_path / "newer.sqlite"
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="newer CANS"):
        open_store(str(newer))
