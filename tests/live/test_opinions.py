"""Whose word does not fit the others': found and named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cans.learning import PoolKey, SufficientStatistics, Upload
from cans.live.server.trust.opinions import LEISURE, Opinions
from cans.live.store.shares import PRESENT, Share

KEY = PoolKey("model", "1", "cans", "link", "network:lab")
RIDGE = 1e-9
TRUTH = np.array([2.0, 40.0])  # milliseconds per unit of each feature


class Speakers:
    """Devices that observe a link and say so, one observation at a time."""

    def __init__(self, seed: int = 0, truth: np.ndarray = TRUTH) -> None:
        self.truth = truth
        self.opinions = Opinions()
        self.random = np.random.default_rng(seed)
        self.said, self.now = 0, 0.0

    def says(
        self, device: str, factor: float = 1.0, epoch: int = 0,
        sizes: tuple[float, ...] = (0.1, 0.3, 1.0), pace: float = 1.0,
    ) -> list[str]:  # fmt: skip
        self.now += LEISURE
        upload = Upload(device, "first", KEY, epoch, self.said, self.one(factor, sizes), pace)
        self.said += 1
        return self.opinions.heard(upload, epoch, RIDGE, self.now)

    def one(
        self, factor: float, sizes: tuple[float, ...] = (0.1, 0.3, 1.0)
    ) -> SufficientStatistics:
        x = np.array([1.0, self.random.choice(sizes)])
        latency = float(x @ self.truth) * factor * self.random.lognormal(0, 0.1)
        weight = 9 / (9 + float(x @ self.truth) ** 2)  # a liar gives its word that of an honest one
        return replace(SufficientStatistics.of(x, latency).scaled(weight), weight=1.0)


@pytest.mark.parametrize("factor", [100.0, 0.01, 5.0, 0.2])
@pytest.mark.parametrize("sizes", [(0.1, 0.3, 1.0), (1.0,)], ids=["all", "large tensors only"])
def test_one_liar_among_three_is_found(factor: float, sizes: tuple[float, ...]) -> None:
    speakers, found = Speakers(), []
    for _ in range(12):
        found += speakers.says("a") + speakers.says("b")
        found += speakers.says("liar", factor, sizes=sizes)
    assert found == ["liar"]


def test_who_followed_a_liar_does_not_vote_for_it() -> None:
    """Its own pace follows the pool: it tells what the liar tells, and measures something else."""
    speakers, found = Speakers(), []
    for _ in range(12):
        found += speakers.says("liar", 5.0) + speakers.says("newcomer")
        found += speakers.says("follower", 5.0, pace=0.2)
    assert found == ["liar"]


def test_a_pace_does_not_hide_a_lie() -> None:
    """Whoever is odd by what it tells is odd, whatever it says that it measured."""
    speakers, found = Speakers(), []
    for _ in range(12):
        found += speakers.says("a") + speakers.says("b") + speakers.says("liar", 5.0, pace=0.2)
    assert found == ["liar"]


def test_who_lies_every_other_time_is_found() -> None:
    speakers, found = Speakers(), []
    for i in range(20):
        found += speakers.says("a") + speakers.says("b")
        found += speakers.says("liar", 5.0 if i % 2 else 1.0)
    assert found == ["liar"]


def test_devices_that_differ_as_devices_do_are_not_odd() -> None:
    """Factors as of one group: up to 1.8 between the fastest and the slowest."""
    for seed in range(20):
        speakers = Speakers(seed)
        factors = {str(i): f for i, f in enumerate(speakers.random.uniform(0.75, 1.34, 5))}
        for _ in range(40):
            for device, factor in factors.items():
                assert speakers.says(device, factor) == []


def test_without_a_majority_nobody_is() -> None:
    speakers = Speakers()
    for _ in range(30):
        for device, factor in (("a", 1.0), ("b", 1.0), ("c", 5.0), ("d", 5.0)):
            assert speakers.says(device, factor) == []
    few = Speakers()
    for _ in range(30):
        assert few.says("a") + few.says("b", 9.0) == []


def test_what_the_store_has_is_recalled_after_a_restart() -> None:
    """Who lied before the restart is found with the first words after it."""
    speakers = Speakers()
    shares = {}
    for device, factor in (("a", 1.0), ("b", 1.0), ("liar", 5.0)):
        said = sum((speakers.one(factor) for _ in range(30)), SufficientStatistics.zero(2))
        shares[device] = Share(0, said, speakers.now)
    assert KEY not in speakers.opinions
    assert speakers.says("a") == []
    speakers.opinions.recall(KEY, shares)
    assert speakers.says("a") == ["liar"]
    other = Speakers()
    other.says("a", epoch=1)
    other.opinions.recall(KEY, shares)  # of an epoch that has ended meanwhile
    assert [other.says("a", epoch=1) for _ in range(9)] == [[]] * 9


def test_what_was_said_of_an_ended_epoch_is_forgotten() -> None:
    speakers = Speakers()
    for _ in range(30):
        speakers.says("a")
        speakers.says("b")
    for _ in range(4):  # too little to vote with
        assert speakers.says("c", 5.0, epoch=1) == []
    for _ in range(30):  # all agree that the link has changed
        assert [speakers.says(each, 5.0, epoch=1) for each in "abc"] == [[], [], []]


def test_one_device_alone_does_not_say_that_a_pool_has_changed() -> None:
    """Of two, each may; of three, whoever did it last waits until another has spoken."""
    speakers = Speakers()
    upload = Upload("b", "first", KEY, 0, 0, replace(SufficientStatistics.of([1.0, 1.0], 42.0)))
    speakers.says("a")
    speakers.opinions.heard(upload, 0, RIDGE, speakers.now, doubted=0.9)
    assert not speakers.opinions.insists("b", KEY, speakers.now)
    speakers.says("c")
    speakers.opinions.heard(upload, 0, RIDGE, speakers.now, doubted=0.9)
    assert speakers.opinions.insists("b", KEY, speakers.now)
    assert not speakers.opinions.insists("a", KEY, speakers.now)
    speakers.says("a")
    assert not speakers.opinions.insists("b", KEY, speakers.now)


def test_who_speaks_alone_is_believed() -> None:
    """Others were silent for a minute: they neither vote nor keep the only one from telling."""
    speakers = Speakers()
    for _ in range(10):
        speakers.says("a")
        speakers.says("b")
    speakers.now += PRESENT
    for _ in range(30):  # the link has changed, and only one device uses it
        assert speakers.says("c", 5.0) == []
        assert not speakers.opinions.insists("c", KEY, speakers.now)


def test_what_takes_no_time_is_worth_no_quarrel() -> None:
    """Three times a tenth of a millisecond is what schedulers do, not what a liar says."""
    speakers = Speakers(truth=TRUTH / 400)
    for _ in range(40):
        found = speakers.says("a") + speakers.says("b") + speakers.says("c", 3.0)
        assert found == []
