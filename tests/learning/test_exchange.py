"""When something learned is worth a message: `cans.learning.arithmetic.exchange`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from cans.learning import (
    DeviceIdentity,
    DeviceLearner,
    Download,
    Latencies,
    PoolKey,
    SufficientStatistics,
    policy_named,
)
from cans.learning.arithmetic.exchange import (
    NEWS_BURST,
    NEWS_SECONDS,
    YOUNG,
    Editions,
    Watcher,
    choices_are_news,
)
from cans.learning.laws import random_table

KEY = PoolKey("m", "1", "cans", "link", "network:lab")
OTHER = KEY._replace(scope="network:home")


def pool(count: int, slope: float = 5.0, epoch: int = 0, key: PoolKey = KEY) -> Download:
    """So many observations of a link that takes `slope` per unit, with 2 % of noise."""
    rng = np.random.default_rng(1)
    total = SufficientStatistics.zero(2)
    for _ in range(count):
        x = np.array([rng.random(), 1.0])
        total = total + SufficientStatistics.of(x, slope * x.sum() * rng.normal(1.0, 0.02))
    return Download(key, epoch, total, round=count)


def test_a_pool_is_news_about_once_per_fourfold_and_when_it_is_no_longer_young() -> None:
    editions = Editions(ridge=1e-9)
    noted = [count for count in range(4, 400) if editions.note(pool(count))]
    assert noted[0] == 4
    assert 2 + int(YOUNG) in noted, "then nobody need tell it everything"
    assert 5 <= len(noted) <= 12
    assert editions.number(KEY) == len(noted)
    assert all(b >= 1.2 * a for a, b in pairwise(noted[5:]))


def test_a_pool_that_moved_or_started_anew_is_news_at_once() -> None:
    editions = Editions(ridge=1e-9)
    editions.note(pool(200))
    assert not editions.note(pool(210))
    assert editions.note(Download(KEY, 0, pool(200).statistics + pool(40, 9.0).statistics, 240))
    assert editions.note(pool(210, epoch=1))


def test_what_could_matter_to_no_choice_is_no_news_however_certain() -> None:
    """300 observations of 10 ms, then as many of another latency: all without noise."""

    def pool(milliseconds: float) -> Download:
        row = np.array([1.0, 2.0])
        early = SufficientStatistics.of(row, 10.0).scaled(300.0)
        late = SufficientStatistics.of(row, milliseconds).scaled(300.0)
        return Download(KEY, 0, early + late, 2)

    editions = Editions(ridge=1e-9)
    assert editions.note(pool(10.0))
    assert not editions.note(pool(10.1)), "by 0.05 ms"
    assert editions.note(pool(10.3)), "by 0.15 ms"


def test_that_more_is_known_is_news_only_of_what_was_uncertain() -> None:
    """Ten times the observations, of noise that averages out soon, and of some that does not."""

    def pool(count: float, noise: float) -> Download:
        row, sums = np.array([1.0, 2.0]), SufficientStatistics.zero(2)
        for ms in (3.0 - noise, 3.0 + noise):
            sums = sums + SufficientStatistics.of(row, ms).scaled(count / 2)
        unlike = SufficientStatistics.of(np.array([2.0, 1.0]), 3.0).scaled(count)
        return Download(KEY, 0, sums + unlike, int(count))

    for noise, expected in ((0.1, False), (1.0, True)):
        editions = Editions(ridge=1e-9)
        assert editions.note(pool(50.0, noise))
        assert editions.note(pool(500.0, noise)) is expected
    editions = Editions(ridge=1e-9)
    told = pool(50.0, 0.1)
    assert editions.note(told)
    other = SufficientStatistics.of(np.array([30.0, 0.0]), 45.0).scaled(100.0)
    assert editions.note(replace(told, statistics=told.statistics + other)), "of something else"


def test_that_more_is_known_of_a_choice_is_news_only_if_it_could_matter() -> None:
    def sums(count: float, average: float, noise: float) -> np.ndarray:
        of_each = np.zeros((5, 3))
        of_each[:3, 1] = count, count * average, count * (average**2 + noise**2)
        return of_each

    few, certain, open_ = sums(2.0, 20.0, 0.1), sums(50.0, 20.0, 1.0), sums(50.0, 20.0, 3.0)
    assert choices_are_news(sums(0.0, 0.0, 0.0), few), "nothing was known"
    assert choices_are_news(few, sums(17.0, 20.0, 0.1)), "two that agree may do so by chance"
    assert not choices_are_news(certain, sums(390.0, 25.0, 1.0)), "less than eight times as much"
    assert not choices_are_news(certain, sums(500.0, 20.1, 1.0))
    assert choices_are_news(certain, sums(500.0, 20.3, 1.0)), "it moved by more than 1 %"
    assert choices_are_news(open_, sums(500.0, 20.1, 3.0)), "known to 2 % only"
    assert not choices_are_news(sums(50.0, 1.0, 0.5), sums(500.0, 1.09, 0.5)), "within 0.1 ms"


def test_news_goes_out_at_once_and_the_rest_when_there_is_a_token() -> None:
    watcher = Watcher.of("me", {KEY: (0, 0), OTHER: (0, 0)}, time=1000.0)
    assert watcher.wait(1000.0) is None
    watcher.changed(pool(1), urgent=False, sender="you")
    assert watcher.due(1000.0) == [], "nobody begins with a token"
    wait = watcher.wait(1000.0)
    assert wait is not None
    assert wait == NEWS_SECONDS
    later = 1000.0 + 3 * wait  # tokens are not saved up
    for round_ in (2, 3):
        watcher.changed(pool(round_), urgent=False, sender="you")
        keys = watcher.due(later)
        assert keys == ([KEY] if round_ <= 1 + NEWS_BURST else [])
        for key in keys:
            watcher.told(key, (0, round_))
    watcher.told(KEY, (0, 3))
    watcher.changed(pool(4), urgent=False, sender="you")
    assert watcher.due(later + 1.0) == []
    watcher.changed(pool(9, key=OTHER), urgent=True, sender="you")
    assert watcher.due(later + 1.0) == [OTHER, KEY], "what waits rides along with what is urgent"


def test_a_watcher_is_not_told_what_it_sent_itself() -> None:
    watcher = Watcher.of("me", {KEY: (0, 5)}, time=0.0)
    watcher.changed(pool(6), urgent=True, sender="me")
    assert watcher.due(0.0) == []
    watcher.changed(pool(7), urgent=False, sender="you")
    watcher.changed(pool(8), urgent=True, sender="me")
    assert watcher.due(0.0) == [KEY], "behind with what others sent, it needs the whole pool"


def test_a_new_epoch_is_told_whatever_else() -> None:
    watcher = Watcher.of("me", {KEY: (0, 5)}, time=0.0)
    watcher.tokens = 0.0
    watcher.changed(pool(6, epoch=1), urgent=False, sender="me")
    assert watcher.due(0.0) == [KEY]


def test_what_is_old_or_not_watched_is_nothing() -> None:
    watcher = Watcher.of("me", {KEY: (0, 5)}, time=0.0)
    watcher.changed(pool(5), urgent=True, sender="you")
    watcher.changed(pool(9, key=OTHER), urgent=True, sender="you")
    assert watcher.due(0.0) == []


def test_what_a_device_measured_can_be_told_from_its_upload() -> None:
    """It tells what an average device would have measured, and by what it divided."""
    rng = np.random.default_rng(3)
    table = random_table(rng.random, 8, (2, 2, 2))
    learner = DeviceLearner(table, policy_named("cans"), DeviceIdentity("slow"))
    learner.join()
    key = next(key for key in learner.pools() if key.part == "front")
    theta, rows = np.array([30.0, 20.0]), table.front[1:]
    known = SufficientStatistics.zero(2)
    for _ in range(200):
        x = rows[rng.integers(len(rows))]
        y = float(x @ theta) * rng.lognormal(0, 0.05)
        one = SufficientStatistics.of(x, y).scaled(9 / (9 + y * y))
        known = known + replace(one, weight=1.0)
    learner.adopt(Download(key, 0, known, 1, acknowledged=0))
    told = measured = SufficientStatistics.zero(2)
    for i in range(60):
        learner.select()
        row = 1 + int(rng.integers(len(rows)))
        y = 2.5 * float(table.front[row] @ theta) * rng.lognormal(0, 0.05)
        uploads = learner.observe(row, Latencies(y, None, None), float(i))
        for upload in learner.flush() if i == 59 else uploads:  # what is on its way goes again
            if upload.key == key:
                told, measured = told + upload.statistics, measured + upload.measured
                learner.acknowledge(Download(key, 0, known, 1, acknowledged=upload.sequence))
    assert measured.count == 60

    def level(said: SufficientStatistics) -> float:
        return float(theta @ said.b / (theta @ said.sigma @ theta))

    assert abs(level(measured) - 2.5) < 0.1
    assert level(told) < 1.5
