"""Offline runs: of what can be run, and where those before leave most open."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cans.learning.arithmetic.offline import chances, offline_choices, own_choices


@given(
    steps=arrays.arrays(float, st.tuples(st.integers(2, 12), st.integers(1, 6)),
                        elements=st.sampled_from([0.0, 1e-6, 1.0, 3.0, 1e12])),
    draws=st.lists(st.floats(0.0, 1.0, exclude_max=True), max_size=8),
    data=st.data(),
)  # fmt: skip
def test_only_what_can_be_run_is_run_and_the_first_two_are_the_longest_and_the_shortest(
    steps, draws, data
) -> None:
    front = np.vstack([np.zeros(steps.shape[1]), steps.cumsum(axis=0)])
    runnable = np.zeros(len(front), dtype=bool)
    runnable[data.draw(st.sets(st.integers(1, len(front) - 1), min_size=1).map(sorted))] = True
    whole = int(np.flatnonzero(runnable)[-1])
    ran = offline_choices(front, np.flatnonzero(runnable).tolist(), whole, np.array(draws))
    assert len(ran) == len(draws)
    assert ran[:2] == [whole, int(runnable.argmax())][: len(draws)]
    assert all(runnable[choice] for choice in ran)
    likely = chances(front, ran, runnable)
    assert np.isclose(likely.sum(), 1.0)
    assert not likely[~runnable].any()


def test_work_of_a_kind_that_no_run_has_told_apart_is_run_next() -> None:
    """Convolutions and then dense layers: whole and shortest leave open which of them takes long,
    what lies just before the dense layers tells."""
    front = np.array([[0, 0], [1, 0], [2, 0], [10, 0], [10, 5], [10, 10]], dtype=float)
    runnable = front.any(axis=1)
    before = chances(front, [5, 1], runnable)
    assert before.argmax() == 3
    after = chances(front, [5, 1, 3], runnable)
    assert after[3] < before[3] / 2


def test_where_one_feature_says_all_long_runs_are_likelier_and_short_ones_possible() -> None:
    front = np.arange(5.0)[:, None]
    likely = chances(front, [4, 1], front.any(axis=1))
    assert np.all(np.diff(likely) > 0.0)
    assert likely[2:].min() > 0.01


def test_a_model_without_features_is_run_anywhere() -> None:
    runnable = np.array([False, True, True])
    assert chances(np.zeros((3, 2)), [2, 1], runnable).tolist() == [0.0, 0.5, 0.5]


def test_a_server_runs_the_longest_the_shortest_and_one_between() -> None:
    assert own_choices([0, 1, 2, 5, 9], 5) == [0, 2, 9]
    assert own_choices([0, 1, 2, 5, 9], 1) == [0]
    assert own_choices([], 5) == []
