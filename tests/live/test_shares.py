"""Every store keeps what each device has said of a pool, so that a lie can be taken back whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cans.learning import PoolKey, SufficientStatistics, Upload
from cans.learning.edge import MergeRules
from cans.live.store import Judged, Store
from cans.live.store.base import Merged
from cans.live.store.shares import (
    FIRST_BAN,
    FOLDED_AT_ONCE,
    LONGEST_BAN,
    MOST_SENDERS,
    NEWCOMER,
    PRESENT,
    REST,
)

KEY = PoolKey("model", "1", "cans", "link", "network:lab")
RULES = MergeRules(watched=True, ridge=1e-9)
TRUTH = np.array([2.0, 40.0])  # milliseconds per unit of each feature


def one(seed: int, factor: float = 1.0) -> SufficientStatistics:
    """One observation as policy `cans` weighs it; a liar gives its word the weight of the truth."""
    rng = np.random.default_rng(seed)
    x = np.array([1.0, rng.choice([0.1, 0.3, 1.0])])
    true = float(x @ TRUTH)
    said = SufficientStatistics.of(x, true * factor * rng.lognormal(0, 0.1))
    return replace(said.scaled(9 / (9 + true**2)), weight=1.0)


class Devices:
    """Devices that speak to one pool of a store, one observation each time."""

    def __init__(self, store: Store) -> None:
        self.store, self.now = store, 1000.0
        self.spoken: dict[str, list[SufficientStatistics]] = {}

    def says(self, device: str, factor: float = 1.0, times: int = 1, pace: float = 1.0) -> Merged:
        said = self.spoken.setdefault(device, [])
        seed = sum(map(ord, device)) * 1000 + len(said)
        word = one(seed, factor)
        word = replace(word.scaled(times), count=times)
        (download,) = self.store.downloads([KEY]) or [None]
        epoch = 0 if download is None else download.epoch
        upload = Upload(device, "first", KEY, epoch, len(said), word, pace)
        said.append(word)
        self.now += 1.0
        (merged,) = self.store.merge([Judged(upload, rules=RULES)], self.now)
        return merged

    def of(self, *devices: str) -> SufficientStatistics:
        """All that these have said."""
        words = (word for device in devices for word in self.spoken[device])
        return sum(words, SufficientStatistics.zero(2))

    def conserved(self) -> None:
        """Counts exactly, sums to 1e-9: in the pool, or doubted."""
        (account,) = self.store.accounts()
        pool, expected = account.pool, self.of(*self.spoken)
        assert account.total == expected.count
        found = pool.statistics if pool.doubted is None else pool.statistics + pool.doubted
        assert found.equals(expected)


@pytest.fixture
def devices(store: Store) -> Devices:
    return Devices(store)


def sums(statistics: SufficientStatistics) -> SufficientStatistics:
    return replace(statistics, count=0)


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("factor", [5.0, 0.2])
def test_what_is_taken_back_is_taken_back_whole(
    devices: Devices, order: int, factor: float
) -> None:
    """In whatever order it came: what is left is what the others said, as if it had been silent."""
    words = [("a", 1.0), ("b", 1.0), ("liar", factor)] * 15
    random.Random(order).shuffle(words)
    for device, lie in words:
        devices.says(device, lie)
    (before,) = devices.store.downloads([KEY])
    taken_back = devices.store.take_back(KEY, ["liar"], devices.now)
    assert taken_back.epoch == before.epoch == 0
    assert taken_back.round == before.round + 1, "so that devices hear of it"
    assert sums(taken_back.statistics).equals(sums(devices.of("a", "b")))
    assert taken_back.statistics.count == 45
    devices.conserved()
    assert devices.store.shares(KEY)["liar"].said.weight == 0.0


def test_devices_that_followed_a_lie_are_taken_at_what_they_measured(devices: Devices) -> None:
    """A liar that was there first is the level of the pool: what others tell is brought to it."""
    for _ in range(20):
        devices.says("liar", 5.0)
    for device in "ab" * 10:
        devices.says(device, 5.0, pace=0.2)  # what it measured is a fifth of what the pool says
    taken_back = devices.store.take_back(KEY, ["liar"], devices.now)
    theta = np.linalg.solve(taken_back.statistics.sigma, taken_back.statistics.b)
    np.testing.assert_allclose(theta, TRUTH, rtol=0.1)
    devices.conserved()


def test_who_was_taken_back_is_not_believed_for_a_while(
    opener: Callable[[], Store],
) -> None:
    """Also after a restart; longer each time; and not where nobody else speaks any more."""
    devices = Devices(opener())
    bans = []
    for _ in range(3):
        for device, lie in [("a", 1.0), ("b", 1.0), ("liar", 5.0)] * 8:
            devices.says(device, lie)
        devices.store.take_back(KEY, ["liar"], devices.now)
        devices.store.close()
        devices.store = opener()
        began = devices.now
        while (merged := devices.says("liar", 5.0)).banned:
            assert merged.download.statistics.weight == pytest.approx(
                devices.store.downloads([KEY])[0].statistics.weight
            )
            devices.conserved()
            devices.now += PRESENT / 2
            devices.says("a")
        bans.append(devices.now - began)
    assert [round(each / FIRST_BAN, 1) for each in bans] == [1.0, 2.0, 4.0]
    assert FIRST_BAN < LONGEST_BAN
    devices.store.take_back(KEY, ["liar"], devices.now)
    assert devices.says("liar", 5.0).banned
    devices.now += PRESENT + 1.0
    assert not devices.says("liar", 5.0).banned, "there must be somebody to learn from"
    assert not devices.says("a").banned
    devices.store.close()


def test_at_most_so_many_are_kept_apart(devices: Devices) -> None:
    """Those who were quiet longest are folded into a rest, whose word stays."""
    names = [f"d{i:02}" for i in range(MOST_SENDERS)]
    for name in names:
        devices.says(name)
    assert len(devices.store.shares(KEY)) == MOST_SENDERS
    devices.says(names[0])
    devices.says("liar", 5.0)
    shares = devices.store.shares(KEY)
    gone = names[1 : FOLDED_AT_ONCE + 1]
    assert shares.keys() == {*names, "liar", REST} - set(gone)
    assert shares[REST].said.equals(devices.of(*gone))
    taken_back = devices.store.take_back(KEY, ["liar"], devices.now)
    assert sums(taken_back.statistics).equals(sums(devices.of(*names)))
    devices.conserved()
    for name in names:  # who was folded and speaks again is kept apart again
        devices.says(name)
    assert len(devices.store.shares(KEY)) <= MOST_SENDERS + 1
    devices.conserved()


def test_nobody_counts_for_more_than_all_others_together(devices: Devices) -> None:
    for device, times in (("a", 1), ("b", 1), ("liar", 1), ("claims much", 1_000_000)):
        for _ in range(8):
            devices.says(device, times=times)
    taken_back = devices.store.take_back(KEY, ["liar"], devices.now)
    assert taken_back.statistics.weight == pytest.approx(8 + 8 + NEWCOMER)
    devices.conserved()


def test_an_ended_epoch_is_nobody_s_word(devices: Devices) -> None:
    for device in "abc":
        devices.says(device)
    devices.store.reset(KEY)
    assert devices.store.shares(KEY) == {}
    devices.says("a")
    assert devices.store.shares(KEY).keys() == {"a"}
    taken_back = devices.store.take_back(KEY, ["b"], devices.now)
    assert sums(taken_back.statistics).equals(sums(devices.spoken["a"][-1]))
    (account,) = devices.store.accounts()
    assert account.total == 4


def test_a_purged_pool_leaves_nothing(devices: Devices) -> None:
    devices.says("a")
    assert devices.store.purge(devices.now + 1.0).pools == 1
    devices.spoken.clear()
    devices.store.merge(
        [Judged(Upload("b", "first", KEY, 0, 0, one(1)), rules=RULES)], devices.now + 2.0
    )
    assert devices.store.shares(KEY).keys() == {"b"}


def test_what_is_not_watched_is_not_kept_apart(devices: Devices) -> None:
    """The paper's policies believe everybody; so does nobody what the server knows better."""
    upload = Upload("a", "first", KEY, 0, 0, one(1))
    devices.store.merge([Judged(upload)], 0.0)
    later = replace(upload, device="b")
    devices.store.merge([Judged(later, trust=0.0, rules=RULES)], 0.0)
    assert devices.store.shares(KEY) == {}
