"""Who has a say in whether a pool has changed: `cans.live.server.trust.witnesses`."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from cans.learning import DeviceIdentity, PoolKey, SufficientStatistics, Upload
from cans.learning.arithmetic.observing import importance
from cans.learning.device.part import pool_key
from cans.live.clock import Clock
from cans.live.server.catalogue import Catalogue
from cans.live.server.pools import Pools
from cans.live.server.trust.witnesses import FORGOTTEN, MOMENT, SETTLED, Witnesses
from cans.live.store import open_store
from tests.live.running import terms
from tests.live.toy import toy

KEY = PoolKey("m", "1", "cans", "link", "network:lab")
SEEN = ["link"]
OTHER = KEY._replace(scope="network:home")


def said(witnesses: Witnesses, *devices: str, begin: float = 0.0, pause: float = 1.0) -> list[bool]:
    """Each of these devices observes something and is surprised, one after the other."""
    found = []
    for i, device in enumerate(devices):
        witnesses.observed([KEY], device)
        found.append(witnesses.surprised(KEY, device, begin + i * pause))
    return found


def silent(witnesses: Witnesses, *devices: str) -> None:
    """Each of these observes something, as expected."""
    for device in devices:
        witnesses.observed([KEY], device)


def test_a_change_that_everybody_sees_is_heard_from_the_second_on() -> None:
    assert said(Witnesses(SEEN), "a", "b", "c", "d") == [False, True, True, True]
    assert said(Witnesses(SEEN), "a", "a", "a", "a", pause=0.01) == [False, True, True, True]


def test_devices_that_may_have_met_the_same_accident_count_once() -> None:
    found = said(Witnesses(SEEN), *(f"device-{i}" for i in range(20)), pause=MOMENT / 8)
    assert [i for i, say in enumerate(found) if say] == [8, 16]


def test_who_is_surprised_while_others_are_not_has_no_say() -> None:
    witnesses = Witnesses(SEEN)
    for i in range(10):
        assert said(witnesses, f"device-{i}", begin=float(i)) == [False]
        silent(witnesses, "a", "b", "c", "d")


def test_a_minority_is_not_heard_however_often_it_speaks() -> None:
    """One device of three sees a change: the two others contradict it by saying nothing."""
    witnesses, heard = Witnesses(SEEN), 0
    for i in range(50):
        silent(witnesses, "a", "b")
        heard += said(witnesses, "alone", begin=float(i))[0]
    assert heard == 0


def test_nobody_drowns_what_the_others_see() -> None:
    witnesses = Witnesses(SEEN)
    said(witnesses, "a")
    silent(witnesses, *["busy"] * 1000)
    assert said(witnesses, "b", "c", begin=1.0) == [True, True]


def test_what_was_contradicted_or_long_ago_is_forgotten() -> None:
    witnesses = Witnesses(SEEN)
    assert not witnesses.asked
    said(witnesses, "a")
    names = [f"device-{i}" for i in range(2 + SETTLED)]
    for name in names:
        witnesses.observed([OTHER], name)
    assert witnesses.asked, "they observed something else"
    silent(witnesses, *names)
    assert not witnesses.asked
    said(witnesses, "a")
    assert said(witnesses, "a", begin=1.1 * FORGOTTEN) == [False]


# --- with pools ----------------------------------------------------------------------------------


class TestClock(Clock):
    """Goes when it is told to."""

    __test__ = False
    time = 1.0

    def now(self) -> float:
        return self.time


@pytest.mark.parametrize(("lasting_s", "changes"), [(0.5, 0), (60.0, 1)])
def test_a_moment_in_which_everybody_is_slow_is_no_change(lasting_s: float, changes: int) -> None:
    """What took far too long weighs by how long it took, so that the pool is not far off; many of
    them would sound its alarm all the same."""
    model, devices = toy(), 80

    async def epochs() -> int:
        catalogue, clock = Catalogue([model], terms("cans", fresh_pools=True)), TestClock()
        pools = Pools(open_store("memory:"), catalogue, clock)
        policy = catalogue.terms.policy
        key = pool_key(policy.part("link"), model.table, policy, DeviceIdentity("pi"))
        row = catalogue.rows(key)[0]
        noise = np.random.default_rng(0)

        async def tell(number: int, sequence: int, expected: float, *measured: float) -> int:
            told, weight = SufficientStatistics.zero(row.size), importance(expected)
            for ms in measured:
                told += SufficientStatistics.of(row, ms).scaled(weight)
            told = replace(told, weight=len(measured))
            (merged,) = await pools.merge([Upload(f"pi-{number}", "0", key, 0, sequence, told)])
            return merged.download.epoch

        try:
            for number in range(devices):
                await tell(number, 0, 6.0, *6.0 * noise.lognormal(0.0, 0.35, 100))
            found = 0
            for number in range(devices):
                clock.time += lasting_s / devices
                found = await tell(number, 1, 60.0, 60.0)
            return found
        finally:
            await pools.close()

    assert asyncio.run(epochs()) == changes
