"""Honest statistics always pass; each way of being impossible is named."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cans.learning import SufficientStatistics
from cans.learning.plausibility import Limits, contradicted, implausible

ROWS = np.array([[0.0, 1.0, 1.0], [0.5, 0.3, 0.8], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def honest(seed: int, count: int, worth: float = 1.0) -> SufficientStatistics:
    rng = np.random.default_rng(seed)
    total = SufficientStatistics.zero(3)
    for _ in range(count):
        row = ROWS[rng.integers(3)]
        total = total.scaled(worth) + SufficientStatistics.of(row, float(rng.lognormal(3, 2)))
    return total


@given(st.integers(0, 2**32), st.integers(0, 300), st.floats(0.5, 1.0))
def test_honest_sums_pass(seed: int, count: int, worth: float) -> None:
    assert implausible(honest(seed, count, worth), ROWS) is None


def test_each_lie_is_named() -> None:
    good = honest(1, 50)
    wide = np.eye(3)
    lies = {
        "dimension": SufficientStatistics.of([1.0, 2.0], 3.0),
        "not finite": replace(good, b=np.array([np.nan, 0, 0])),
        "observations in one upload": replace(good, count=10**9),
        "weight": replace(good, weight=51.0),
        "are not zero": replace(SufficientStatistics.zero(3), squares=1.0),
        "not symmetric": replace(good, sigma=good.sigma + np.triu(wide + 1, 1) * 3),
        "larger than": replace(good, sigma=good.sigma * 100),
        "negative entries": replace(good, sigma=good.sigma * 0 - wide),
        "positive semi-definite": replace(good, b=good.b * 1000),
        "negative sum": replace(good, squares=-1.0),
        "latencies beyond": SufficientStatistics.of(ROWS[0], 1e9),
        "negative latencies": SufficientStatistics.of(ROWS[0], -5.0),
    }
    for expected, lie in lies.items():
        assert expected in (implausible(lie, ROWS) or "nothing"), expected


CHOICES = np.array(
    [[2.0, 0.0, 3.0], [40.0, 0.0, 90.0], [808.0, 0.0, 2718.0], [0.02, 0, 0], [1, 0, 0]]
)


def test_each_lie_about_choices_is_named() -> None:
    good = honest(1, 5)

    def said(row: int, value: float) -> SufficientStatistics:
        sums = CHOICES.copy()
        sums[row, 0] = value
        return replace(good, choices=sums)

    assert implausible(said(1, 40.0), ROWS) is None
    lies = {
        "not finite": said(1, math.nan),
        "more observations of choices": said(0, 9.0),
        "no latencies": said(2, 799.0),
        "latencies of choices beyond": said(2, 1e15),
        "negative latencies of choices": said(1, -40.0),
        "more paces": said(4, 3.0),
        "no device tells": said(3, 0.3),
    }
    for expected, lie in lies.items():
        assert expected in (implausible(lie, ROWS) or "nothing"), expected
    assert implausible(said(3, -0.05), ROWS) == "paces that no device tells of"


def test_a_device_faster_than_its_pool_tells_more_than_it_measured() -> None:
    """Three seconds on a device that takes half as long as others, where five are allowed."""
    sums = np.zeros((5, 1))
    sums[:3, 0] = 1.0, 6000.0, 6000.0**2
    fast = replace(SufficientStatistics.of(ROWS[0], 0.5), choices=sums)
    assert implausible(fast, ROWS, Limits(highest_ms=5000.0)) is None


def test_limits_can_be_off() -> None:
    anything = Limits(lowest_ms=-math.inf, highest_ms=math.inf)
    assert implausible(SufficientStatistics.of(ROWS[0], -1e7), ROWS, anything) is None
    assert anything.admits(-1e9)
    assert not Limits().admits(-1.0)


@pytest.mark.parametrize("value", [1e155, 1e308])
def test_overflow_is_refused(value: float) -> None:
    with np.errstate(over="ignore"):
        lie = replace(honest(1, 5), b=np.full(3, value), squares=value)
    assert implausible(lie, ROWS) is not None


# --- contradicting ---


def measured(factor: float, count: int, seed: int = 0) -> SufficientStatistics:
    """Observations of a link of 2 ms and 0.1 ms a kilobyte, so many times as slow."""
    random, total = np.random.default_rng(seed), SufficientStatistics.zero(2)
    for size in random.choice([8.0, 64.0, 150.0], count):
        latency = factor * (2.0 + 0.1 * size) * random.lognormal(0.0, 0.05)
        weight = 9.0 / (9.0 + (2.0 + 0.1 * size) ** 2)
        one = SufficientStatistics.of(np.array([1.0, size]), latency).scaled(weight)
        total += replace(one, weight=1.0, count=1)
    return total


def test_a_pool_that_is_far_from_what_was_measured_contradicts_it() -> None:
    own = measured(1.0, 20)
    assert not contradicted(measured(1.0, 500, 1), own, 0.01)
    assert not contradicted(measured(1.5, 500, 1), own, 0.01), "devices differ"
    assert contradicted(measured(5.0, 500, 1), own, 0.01)
    assert contradicted(measured(0.2, 500, 1), own, 0.01)


def test_a_pool_of_lies_and_truths_is_contradicted_although_it_is_noisy() -> None:
    mixed = measured(5.0, 300, 1) + measured(1.0, 100, 2)
    assert contradicted(mixed, measured(1.0, 20), 0.01)


def test_few_measurements_may_have_been_disturbed_but_not_to_be_faster() -> None:
    assert not contradicted(measured(0.2, 500, 1), measured(1.0, 5), 0.01)
    assert contradicted(measured(5.0, 500, 1), measured(1.0, 5), 0.01)
    assert not contradicted(measured(5.0, 500, 1), measured(1.0, 1), 0.01)
    assert not contradicted(SufficientStatistics.zero(2), measured(1.0, 50), 0.01)
