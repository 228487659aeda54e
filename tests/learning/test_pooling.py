"""What a device does with downloads and uploads, and a server with what is news: `pooling.py`, by
hand. Merging is in `test_physical.py`."""

from __future__ import annotations

import numpy as np
import pytest
from test_physical import FRONT, LINK, a_state, packed, ten_rows

from cans.learning.arithmetic import estimating, observing, pooling
from cans.learning.arithmetic.arrays import LearnerState, new_pools
from cans.learning.arithmetic.exchange import GROWN, MOVED
from cans.learning.policies import POLICIES
from reference_cans import Row


def mid_epoch(policy: str = "cans") -> LearnerState:
    """Device 1 is in epoch 3 of its link's pool, round 7, with 5 buffered and 2 of them sent."""
    state = a_state(POLICIES[policy])
    state.epoch[1, LINK], state.round[1, LINK] = 3, 7
    state.local[1, LINK], state.sent[1, LINK] = 5.0, 2.0
    state.startling[1, LINK, -1], state.awaited[1, LINK] = 1.0, 4.0  # of a row of zeros, say
    state.heard[1, LINK] = 10.0
    if state.physics.used:
        state.physics.own[1, LINK], state.physics.pace[1, LINK] = 6.0, 1.5
        state.physics.divisor[1, LINK] = 1.5
        state.physics.stale[:] = False
    return state


def arrives(state: LearnerState, epoch: int, round_: int, time: float = 12.0) -> None:
    pool = packed([Row(np.ones(2), 30.0)] * 9, 2)
    pooling.take_in(state, 1, LINK, pool, epoch, round_, time)


@pytest.mark.parametrize(("epoch", "round_"), [(2, 99), (3, 6)], ids=["ended epoch", "older round"])
def test_a_download_that_was_overtaken_changes_nothing(epoch, round_) -> None:
    state, before = mid_epoch(), mid_epoch()
    arrives(state, epoch, round_)
    for name in ("synced", "local", "sent", "retired", "epoch", "round", "heard"):
        np.testing.assert_array_equal(getattr(state, name), getattr(before, name))
    assert not state.physics.stale.any()


@pytest.mark.parametrize("round_", [7, 8], ids=["the same round again", "the next one"])
def test_a_download_of_this_epoch_is_adopted_and_leaves_the_buffer(round_) -> None:
    state = mid_epoch()
    arrives(state, 3, round_)
    assert state.synced[1, LINK, -1] == 9.0
    assert (state.local[1, LINK] == 5.0).all()
    assert state.round[1, LINK] == round_
    assert state.heard[1, LINK] == 12.0
    assert state.physics.stale[1, LINK]
    assert state.physics.pace[1, LINK] == 1.5
    assert not state.synced[0].any(), "another device's"


def test_a_new_epoch_retires_what_was_observed_for_the_last() -> None:
    """What is on its way stays in the buffer: the server retires it when it arrives."""
    state = mid_epoch()
    state.retired[1, LINK] = 0.5
    arrives(state, 4, 1)
    assert (state.retired[1, LINK] == 3.5).all()
    assert (state.local[1, LINK] == 2.0).all()
    assert (state.epoch[1, LINK], state.round[1, LINK]) == (4, 1)
    assert not state.startling[1, LINK].any()
    assert state.awaited[1, LINK] == 0.0
    assert not state.physics.own[1, LINK].any()
    assert state.physics.pace[1, LINK] == state.physics.divisor[1, LINK] == 1.0
    assert state.synced[1, LINK, -1] == 9.0


def test_the_paper_s_parts_retire_too() -> None:
    state = mid_epoch("fedlinucb-dw")
    part = FRONT
    for array in (state.local, state.sent):
        array[1, part] = array[1, LINK]
    state.epoch[1, part] = 3
    pooling.retire(state, 1, part)
    assert (state.retired[1, part] == 3.0).all()
    assert (state.local[1, part] == 2.0).all()


def test_an_upload_carries_the_buffer_or_the_surprises_alone() -> None:
    state = mid_epoch()
    surprising = state.startling[1, LINK].copy()
    pooling.send(state, 1, LINK)
    assert state.sent[1, LINK].tolist() == surprising.tolist()
    assert state.awaited[1, LINK] == 4.0, "and what follows is still to be told"
    assert not state.startling[1, LINK].any()
    pooling.send(state, 1, LINK)
    assert (state.sent[1, LINK] == 5.0).all()
    assert state.awaited[1, LINK] == 0.0
    pooling.acknowledge(state, 1, LINK)
    assert not state.local[1, LINK].any()
    assert not state.sent[1, LINK].any()
    plain = mid_epoch()
    plain.events[LINK] = False
    pooling.send(plain, 1, LINK)
    assert (plain.sent[1, LINK] == 5.0).all(), "a part without events sends all it has"


def test_a_pool_is_published_when_it_is_news_and_only_then() -> None:
    pools = new_pools(2, 3, 2, (MOVED, GROWN))
    rows = ten_rows()

    def editions(*more: Row) -> int:
        rows.extend(more)
        pools.statistics[1, FRONT] = packed(rows, 2)
        pooling.publish(pools, 1, FRONT, 0.01, 2)
        return int(pools.edition[1, FRONT])

    assert editions() == 1, "the first that is known"
    assert editions() == 1, "nothing has changed"
    np.testing.assert_array_equal(pools.told[1, FRONT], packed(rows, 2))
    assert editions(ten_rows()[0]) == 1, "one more of the same"
    assert pools.told[1, FRONT, -1] == 12.0, "what the edition says is what was told"
    assert editions(*ten_rows(), *ten_rows()) == 2, "twice as much is known"
    assert editions(*[Row(row.x, 3.0 * row.y) for row in ten_rows()]) == 3, "it says something else"
    assert not pools.edition[0].any()
    assert not pools.edition[:, LINK].any()


def test_starting_anew_is_a_new_epoch_with_a_given_past() -> None:
    pools = new_pools(1, 3, 2)
    pools.statistics[0, FRONT], pools.alarm[0, FRONT] = packed(ten_rows(), 2), 9.0
    pools.retired[0, FRONT] = 1.0
    pooling.start_anew(pools, 0, FRONT, np.full(9, 0.25))
    assert (pools.statistics[0, FRONT] == 0.25).all()
    np.testing.assert_allclose(pools.retired[0, FRONT], packed(ten_rows(), 2) + 1.0)
    assert not pools.alarm[0, FRONT].any()
    assert pools.epoch[0, FRONT] == 1


def test_a_past_at_another_level_is_a_guess_that_sounds_no_alarm() -> None:
    """A link became slow, said large exchanges; small ones hardly did, which is no other change."""
    pools, ridge = new_pools(1, 1, 2), 1e-9

    def merge(size: float, milliseconds: float) -> int:
        weight = observing.importance(milliseconds) ** 0.5
        row = Row(weight * np.array([size, 1.0]), weight * milliseconds)
        pooling.merge(pools, 0, 0, packed([row], 2), int(pools.epoch[0, 0]), 0.0, ridge, True, 2)
        return int(pools.epoch[0, 0])

    for number in range(200):
        merge(*((10.0, 100.0) if number % 2 else (0.1, 2.0)) * np.array([1.0, 1 + number % 3 / 50]))
    slow = [merge(10.0, 2_500.0) for _ in range(4)]
    assert slow[-1] == 1, "the link"
    assert pools.statistics[0, 0, -2] > 7.0 > pools.statistics[0, 0, -1], "most of it is its past"
    assert [merge(0.1, 4.0) for _ in range(3)] == [1] * 3
    theta = estimating.estimate_of(
        pools.statistics[0, 0], ridge,
        np.linalg.inv(pooling.sigma_of(pools.statistics[0, 0], ridge)),
    )  # fmt: skip
    assert theta @ [200.0, 1.0] > 10_000.0, "nothing large is worth a try"
