"""Who has a say in whether a pool has changed: `cans.live.server.trust.witnesses`."""

from __future__ import annotations

from cans.learning import PoolKey
from cans.live.server.trust.witnesses import FORGOTTEN, MOMENT, SETTLED, Witnesses

KEY = PoolKey("m", "1", "cans", "link", "network:lab")
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
    assert said(Witnesses(), "a", "b", "c", "d") == [False, True, True, True]
    assert said(Witnesses(), "a", "a", "a", "a", pause=0.01) == [False, True, True, True]


def test_devices_that_may_have_met_the_same_accident_count_once() -> None:
    found = said(Witnesses(), *(f"device-{i}" for i in range(20)), pause=MOMENT / 8)
    assert [i for i, say in enumerate(found) if say] == [8, 16]


def test_who_is_surprised_while_others_are_not_has_no_say() -> None:
    witnesses = Witnesses()
    for i in range(10):
        assert said(witnesses, f"device-{i}", begin=float(i)) == [False]
        silent(witnesses, "a", "b", "c", "d")


def test_a_minority_is_not_heard_however_often_it_speaks() -> None:
    """One device of three sees a change: the two others contradict it by saying nothing."""
    witnesses, heard = Witnesses(), 0
    for i in range(50):
        silent(witnesses, "a", "b")
        heard += said(witnesses, "alone", begin=float(i))[0]
    assert heard == 0


def test_nobody_drowns_what_the_others_see() -> None:
    witnesses = Witnesses()
    said(witnesses, "a")
    silent(witnesses, *["busy"] * 1000)
    assert said(witnesses, "b", "c", begin=1.0) == [True, True]


def test_what_was_contradicted_or_long_ago_is_forgotten() -> None:
    witnesses = Witnesses()
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
