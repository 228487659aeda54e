"""Which choices can win: `viability.py` against linear programs and brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import reference_cans
from cans.learning.arithmetic import scoring, viability
from cans.learning.arithmetic.layout import fleet_state
from cans.learning.arithmetic.viability import (
    beaten_by,
    floors,
    offered_choices,
    viable_choices,
)
from cans.learning.device.learner import DeviceLearner
from cans.learning.laws import random_table
from cans.learning.policies import POLICIES, Hyperparameters
from cans.learning.table import PartitionTable
from cans.simulation.run import Settings, play
from cans.simulation.worlds.backbones import MODELS
from cans.simulation.worlds.named import make_world


def a_table(front, link, codecs=()) -> PartitionTable:
    points = [f"point-{row}" for row in range(len(front))]
    server = [[1.0]] * (len(front) - 1) + [[0.0]]
    return PartitionTable("toy", points, np.array(front, float), np.array(link, float), server,
                          codec_of=codecs)  # fmt: skip


@given(
    seed=st.integers(0, 2**32),
    choices=st.integers(3, 12),
    widths=st.tuples(*[st.integers(1, 3)] * 3),
)
@settings(max_examples=60)
def test_viable_choices_equal_the_linear_programs(seed, choices, widths) -> None:
    table = random_table(np.random.default_rng(seed).random, choices, widths)
    viable, clear = reference_cans.viable_choices(table.front, table.link)
    assume(clear > 0.01)
    assert viable_choices(table).tolist() == viable


@pytest.mark.parametrize("world", ["paper", "layered"])
@pytest.mark.parametrize("model", MODELS)
def test_viable_choices_of_real_models_equal_the_linear_programs(world, model) -> None:
    table = make_world(world, model, 3).table
    assert (
        viable_choices(table).tolist() == reference_cans.viable_choices(table.front, table.link)[0]
    )
    assert viable_choices(table).sum() < table.choices


@given(seed=st.integers(0, 2**32))
@settings(max_examples=10)
def test_whatever_wins_for_some_theta_is_viable(seed) -> None:
    """Brute force: draw speeds, look who wins by more than the slack."""
    rng = np.random.default_rng(seed)
    table = random_table(rng.random, 8, (1, 2, 1))
    costs = np.hstack([table.front, table.link])
    for _ in range(50):
        total = costs @ rng.exponential(size=costs.shape[1])
        best = int(total.argmin())
        assert viable_choices(table)[best] or total[best] > 0.98 * np.delete(total, best).min()


def test_one_that_is_dominated_by_less_than_the_slack_stays() -> None:
    front = [[0], [0.5], [0.5], [0.5], [1]]
    link = [[1], [0.5], [0.5 / 0.975], [0.5 / 0.985], [0]]
    assert viable_choices(a_table(front, link)).tolist() == [True, True, False, True, True]


def test_one_that_a_mixture_beats_by_less_than_the_slack_stays() -> None:
    """The chord of the first and the last choice passes (0.5, 0.5)."""
    for far, stays in ((0.5 / 0.97, False), (0.5 / 0.99, True)):
        table = a_table([[0], [far], [1]], [[1], [far], [0]])
        assert viable_choices(table).tolist() == [True, stays, True]


def test_the_first_and_the_last_choice_always_stay() -> None:
    table = a_table([[0.5], [0.1], [1]], [[1], [0.1], [0]])
    assert viable_choices(table).all()
    lonely = a_table([[0], [1]], [[1], [0]])
    assert viable_choices(lonely).all()


def test_what_was_left_out_leaves_nobody_out() -> None:
    """Equal rows leave one another in: neither is clearly better."""
    twins = a_table([[0], [0.5], [0.5], [1]], [[1], [0.2], [0.2], [0]])
    assert viable_choices(twins).all()


def test_codecs_may_be_left_to_the_first() -> None:
    table = a_table([[0], [0], [0.5], [0.5], [1]], [[1], [0.25], [0.4], [0.1], [0]],
                    ["float32", "uint8", "float32", "uint8", "float32"])  # fmt: skip
    assert offered_choices(table).all()
    assert offered_choices(table, False).tolist() == [True, False, True, False, True]
    assert viable_choices(table, False).tolist() == [True, False, True, False, True]
    assert viable_choices(table).tolist() == [True, True, False, True, True]
    later = replace(table, codec_of=["uint8", "uint8", "float32", "float32", "float32"])
    assert offered_choices(later, False).tolist() == [True, True, False, False, False]


def test_a_mixture_must_beat_by_the_slack() -> None:
    assert not viability._beaten_by_mixture(np.ones((1, 2)), np.ones(2)), "nobody beats itself"
    assert viability._beaten_by_mixture(np.zeros((1, 2)), np.ones(2))
    assert viability._beaten_by_mixture(np.array([[0.98, 0.5]]), np.ones(2))
    assert not viability._beaten_by_mixture(np.array([[0.99, 0.5]]), np.ones(2))


@given(seed=st.integers(0, 2**32), choices=st.integers(1, 6), columns=st.integers(1, 4))
def test_floors_by_brute_force(seed, choices, columns) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.random((choices, columns)) * (rng.random((choices, columns)) < 0.7)
    found = floors(rows)
    for q in range(choices):
        for p in range(choices):
            shares = [rows[p, j] / rows[q, j] for j in range(columns) if rows[q, j] > 0]
            assert found[q, p] == pytest.approx(min(shares, default=0.0))
    for _ in range(20):  # and that is what they mean
        total = rows @ rng.exponential(size=columns)
        assert (total[None, :] >= found * total[:, None] * (1 - 1e-12)).all()


def test_a_server_that_is_slower_in_one_class_of_work_is_found_out() -> None:
    settings = Settings("vit_b16", "cans", "accelerator", devices=10, rounds=500)
    world = settings.make_world()
    record = play(settings, "reference", 6, world)
    best = [int(sum(world.segments_ms(device)).argmin()) for device in range(10)]
    assert not viable_choices(world.table)[best].any(), "their best choice was left out"
    assert (record.regret_ms[400:] == 0.0).mean() > 0.8, "and is what most of them choose"


def test_rows_of_another_size_leave_the_viable_choices_of_the_first_as_they_were() -> None:
    table = a_table([[0], [1], [2], [4]], [[9], [8], [1], [0]])
    before = viable_choices(table).copy()
    learner = DeviceLearner(table, POLICIES["cans"])
    other = replace(table, link=np.array([[9.0], [1.0], [8.0], [0.0]]))
    assert viable_choices(other).tolist() != before.tolist()
    learner.use_rows(other)
    assert viable_choices(table).tolist() == before.tolist()


@given(seed=st.integers(0, 2**32), choices=st.integers(3, 12))
@settings(max_examples=30)
def test_what_is_left_of_the_allowed_is_what_none_of_them_beats(seed, choices) -> None:
    rng = np.random.default_rng(seed)
    table = random_table(rng.random, choices, (2, 2, 1))
    allowed = rng.random(choices) < 0.5
    state = fleet_state(table, POLICIES["cans"], Hyperparameters(), 1)
    left = scoring.barred_among(state, allowed) == 0.0
    wanted = reference_cans.viable_among(table.front, table.link, allowed)
    assert left.tolist() == wanted
    assert beaten_by(table).diagonal().sum() == 0, "none beats itself"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("first", [1, 4])
def test_what_must_not_be_chosen_beats_nobody(first) -> None:
    """The raw input, or the first cuts too, must not leave the device: what only they would beat
    is found. (Choices were judged among all of them once: 164 % and 71 % above the best.)"""
    what = Settings("vgg16", "cans", "layered", devices=6, rounds=1_200)
    world = what.make_world()
    allowed = world.allowed.copy()
    allowed[:, :first] = False
    world = replace(world, allowed=allowed)
    for engine in ("fast", "reference"):
        record = play(what, engine, 7, world)
        assert record.picks.min() >= first
        late = slice(600, None)
        best = record.expected_ms[late] - record.regret_ms[late]
        assert record.regret_ms[late].sum() < 0.01 * best.sum()
