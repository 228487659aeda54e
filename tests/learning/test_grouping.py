"""Groups of devices whose types nobody named."""

from __future__ import annotations

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st

from cans.learning.grouping import LEAST_MS, SPAN, Family, counted, group_of, outgrown, placed

times = st.floats(0.01, 1e6)


@given(st.lists(times, max_size=40))
def test_no_group_spans_more_than_the_factor_and_everyone_is_in_one(found) -> None:
    spans, members = (), {}
    for ms in found:
        number, spans = placed(spans, ms)
        members.setdefault(number, []).append(counted(ms))
    assert sorted(members) == list(range(len(spans)))
    for number, group in members.items():
        assert (min(group), max(group)) == spans[number]
        assert max(group) <= SPAN * min(group) * (1 + 1e-12)


@given(st.lists(times, min_size=1, max_size=20), st.randoms())
def test_types_far_apart_are_told_apart_in_any_order(noise, random) -> None:
    """Types that differ by more than the span and its noise, each disturbed by up to 15 %."""
    devices = [
        (base, base * (1 + 0.15 * (ms % 1.0))) for ms in noise for base in (10.0, 40.0, 300.0)
    ]
    random.shuffle(devices)
    spans, groups = (), {}
    for base, ms in devices:
        number, spans = placed(spans, ms)
        groups.setdefault(base, set()).add(number)
    assert len(spans) == 3
    assert all(len(numbers) == 1 for numbers in groups.values())


def test_the_nearest_of_several_groups_takes_a_device() -> None:
    spans = ()
    for ms in (10.0, 25.0):
        _, spans = placed(spans, ms)
    assert group_of(spans, 14.0) == 0
    assert group_of(spans, 18.0) == 1
    assert group_of(spans, 60.0) == 2


def test_what_is_below_a_few_milliseconds_or_no_time_at_all_counts_as_that() -> None:
    assert [counted(ms) for ms in (-5.0, 0.0, 1.0, nan, inf)] == [LEAST_MS] * 5


def test_names_carry_the_label_and_the_provider() -> None:
    assert Family("m", "s", "CPUExecutionProvider").name(0) == "auto-1"
    assert Family("m", "s", "CPUExecutionProvider", "rpi5").name(1) == "rpi5/auto-2"
    assert Family("m", "s", "TensorrtExecutionProvider", "nx").name(0) == "nx/auto-tensorrt-1"


def test_a_device_has_outgrown_its_group_when_its_pace_is_far_from_it() -> None:
    assert [outgrown(pace) for pace in (0.5, 0.7, 1.0, 1.5, 1.7)] == [True, False, False, False,
                                                                     True]  # fmt: skip
