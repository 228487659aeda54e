"""What a line mispredicts is learned choice by choice, shared, and looked at now and then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_cans
from cans.learning import DeviceLearner, EdgeAggregator, Latencies, PartitionTable, policy_named
from cans.learning.arithmetic import estimating, pooling, scoring
from cans.learning.arithmetic.arrays import LearnerState, new_pools
from cans.learning.arithmetic.by_choice import barring, bending, deviations, looks
from cans.learning.arithmetic.layout import fleet_state
from cans.learning.choice import Context
from cans.learning.congestion import Load
from cans.learning.messages import DeviceIdentity
from cans.learning.policies import ABLATIONS, POLICIES, Hyperparameters
from cans.learning.statistics import SufficientStatistics
from cans.simulation.run import Settings, play
from cans.simulation.worlds.named import make_world
from reference_cans import Row

WORK = np.linspace(0.0, 1.0, 9)
CANS, STRAIGHT = POLICIES["cans"], ABLATIONS["cans-no-deviations"]


def table() -> PartitionTable:
    """Nine choices: front-ends that grow, tensors that shrink, back-ends that shrink."""
    sent = np.where(WORK < 1.0, 1.0 - 0.9 * WORK, 0.0)
    return PartitionTable(
        "nine",
        [f"point-{choice}" for choice in range(9)],
        front=WORK[:, None],
        link=np.column_stack([sent, sent > 0]),
        server=(1.0 - WORK)[:, None],
    )


def averages(weight: float, latency: np.ndarray) -> np.ndarray:
    """Sums of every choice, each observed with this weight."""
    return np.array([np.full(len(latency), weight), weight * latency, weight * latency**2])


# --- the spread of the choices -------------------------------------------------------------------


def test_a_line_that_fits_has_no_spread() -> None:
    mean = 100.0 * WORK[1:]
    rng = np.random.default_rng(1)
    noisy = mean * (1.0 + rng.normal(0.0, 0.1 / np.sqrt(5.0), len(mean)))
    sums = deviations.weighted(averages(5.0, noisy), mean)
    assert (
        deviations.spread_of(sums, mean, mean, np.zeros(len(mean)), np.full(8, 0.09), 0.09) == 0.0
    )


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_the_spread_is_read_off_the_averages(spread: float) -> None:
    mean = 100.0 * WORK[1:]
    bent = mean * (1.0 + spread * np.array([1, -1] * 4))
    sums = deviations.weighted(averages(200.0, bent), mean)
    found = deviations.spread_of(sums, mean, mean, np.zeros(len(mean)), np.full(8, 0.09), 0.09)
    assert found == pytest.approx(spread, rel=0.51)


def test_a_choice_that_the_line_was_drawn_through_says_nothing() -> None:
    mean = np.array([100.0])
    sums = deviations.weighted(averages(1000.0, np.array([150.0])), mean)
    certain = 1.0 / np.sqrt(sums[0])
    assert deviations.spread_of(sums, mean, mean, certain, np.array([0.09]), 0.09) == 0.0
    assert deviations.spread_of(sums, mean, mean, np.zeros(1), np.array([0.09]), 0.09) > 0.0


def test_what_was_seen_once_does_not_speak_against_the_line() -> None:
    mean = 100.0 * WORK[1:]
    once, twice = (deviations.weighted(averages(number, 2.0 * mean), mean) for number in (1.0, 2.0))
    assert deviations.spread_of(once, mean, mean, np.zeros(8), np.full(8, 0.09), 0.09) == 0.0
    assert deviations.spread_of(twice, mean, mean, np.zeros(8), np.full(8, 0.09), 0.09) > 0.0


def test_a_few_observations_that_agree_are_no_evidence() -> None:
    """One choice of eight, far from its line and hardly scattered, is as noisy as the others; and
    noise that is known from few observations is Student's."""
    mean, apart = 100.0 * WORK[1:], np.zeros(8)
    apart[3] = 0.35
    noise = np.full(8, 0.09)
    noise[3] = 0.02
    several, many = (
        deviations.weighted(averages(number, mean * (1.0 + apart)), mean) for number in (2.0, 40.0)
    )
    assert deviations.spread_of(several, mean, mean, np.zeros(8), noise, 0.09) == 0.0
    assert deviations.spread_of(many, mean, mean, np.zeros(8), noise, 0.09) > 0.0


def test_residuals_are_judged_by_the_scatter_of_a_choice() -> None:
    """Not less than the line says; where a choice was seen little, as all of them scatter."""
    raw = np.zeros((3, 3))
    for choice, latency in [(0, 1.0 + 5.0 * (-1) ** i) for i in range(40)] + [(1, 1.0)]:
        raw[:, choice] += 1.0, latency, latency * latency
    found = deviations.scattered(raw, 4.0)
    assert found[0] == pytest.approx(0.9 * 25.0, rel=0.1)
    assert found[1] == found[2] == pytest.approx(0.9 * 25.0, rel=0.1)
    assert deviations.scattered(raw, 50.0).min() == 50.0
    assert deviations.scattered(np.zeros((3, 2)), 4.0).tolist() == [4.0, 4.0]


def test_noise_is_what_is_left_about_the_averages() -> None:
    """Of two choices at 100 ms each, far apart from each other, with a scatter of 10 ms in both."""
    mean = np.array([100.0, 100.0])
    raw = np.array([[50.0, 50.0], [5000.0, 10_000.0], [505_000.0, 2_005_000.0]])
    noise, every = deviations.noise_of(deviations.weighted(raw, mean), mean, 0.0)
    assert np.sqrt(noise / deviations.share(mean)) == pytest.approx([10.0, 10.0], rel=0.05)
    assert every == pytest.approx(noise[0], rel=0.1)


def test_noise_that_is_no_share_of_latency_is_found_to_be_none() -> None:
    """Ten milliseconds at 20 ms as at 200 ms: a third choice, seen once, is expected to have it."""
    mean = np.array([20.0, 200.0, 10.0])
    number = np.array([20.0, 20.0, 1.0])
    raw = np.array([number, number * mean, number * (mean**2 + [100.0, 100.0, 0.0])])
    noise, _ = deviations.noise_of(deviations.weighted(raw, mean), mean, 0.0)
    assert np.sqrt(noise / deviations.share(mean))[2] == pytest.approx(10.0, rel=0.1)
    raw[2] = number * mean**2 * 1.01
    noise, _ = deviations.noise_of(deviations.weighted(raw, mean), mean, 0.0)
    assert np.sqrt(noise / deviations.share(mean))[2] == pytest.approx(1.0, rel=0.2)


def test_much_evidence_overrules_the_line_and_little_does_not() -> None:
    mean = np.array([100.0, 100.0, 100.0])
    raw = np.array([[1e-3, 1e5, 0.0], [0.15, 1.5e7, 0.0], [0.0, 0.0, 0.0]])
    sums = deviations.weighted(raw, mean)
    noise = deviations.unexplained(sums, mean, 0.2, np.full(3, 0.09))
    assert noise[2] == 1.0
    off = deviations.deviations(sums, mean, noise)
    assert off[0] == pytest.approx(0.0, abs=1.0)
    assert off[1] == pytest.approx(50.0, rel=0.01)
    assert off[2] == 0.0
    width = deviations.doubt(mean, np.zeros(3), noise, 0.2, 0.09)
    assert width[2] == pytest.approx(0.2 * np.sqrt(100.0**2 + 3.0**2))
    assert width[1] < 0.1 * width[2]


# --- a fleet -------------------------------------------------------------------------------------


def played(policy, truth, rounds: int, devices: int = 4):
    """Picks of a fleet of equal devices, and its learners and server."""
    rng = np.random.default_rng(3)
    edge = EdgeAggregator(policy)
    learners = [
        DeviceLearner(table(), policy, DeviceIdentity(f"d{number}")) for number in range(devices)
    ]
    for learner in learners:
        runs = rng.integers(1, 9, 5)
        offline = [(int(p), float(truth[0][p] * rng.lognormal(0.0, 0.1))) for p in runs]
        for upload in learner.join(offline):
            learner.adopt(edge.merge(upload))
    picks = []
    for t in range(rounds):
        learner = learners[t % devices]
        for key in learner.pools():
            learner.adopt(edge.download(key))
        choice = learner.select()
        assert np.isfinite(choice.width_ms), "also of a look at what was left out"
        picks.append(choice.row)
        times = [float(ms[choice.row] * rng.lognormal(0.0, 0.1)) for ms in truth]
        for upload in learner.observe(choice, Latencies(*times), float(t)):
            learner.adopt(edge.merge(upload, float(t)))
    return np.array(picks), learners, edge


def bent_truth():
    """The first half of the layers take four times as long as the rest of them, on the device
    alone: the line, drawn through the whole model, does not know."""
    front = 100.0 * np.where(WORK <= 0.5, 1.6 * WORK, 0.8 + 0.4 * (WORK - 0.5))
    link = np.where(WORK < 1.0, 60.0 - 54.0 * WORK, 0.0)
    return front, link, 20.0 * (1.0 - WORK)


def test_what_bends_is_found() -> None:
    truth = bent_truth()
    total = sum(truth)
    picks, learners, _ = played(CANS, truth, 600)
    assert (total[picks[-100:]] / total.min()).mean() < 1.02
    front = learners[0].part_predictions("front")[0]
    often = np.bincount(picks, minlength=9) > 20
    assert front[often] == pytest.approx(truth[0][often], rel=0.08)


def test_a_part_that_is_not_to_bend_keeps_no_sums_of_choices() -> None:
    for policy, kept in ((CANS, {"front", "link", "server"}), (STRAIGHT, set())):
        _, learners, edge = played(policy, bent_truth(), 40)
        with_sums = {key.part for key, pool in edge.pools.items() if pool.statistics.choices.any()}
        assert with_sums == kept
        assert learners[0]._state.choices.used == bool(kept)


def test_observations_of_choices_are_conserved() -> None:
    """Pools, doubts and buffers together have every observation, each of one choice."""
    picks, learners, edge = played(CANS, bent_truth(), 120)
    told = sum(
        kept.choices[0].sum()
        for key, pool in edge.pools.items()
        if key.part == "front"
        for kept in (pool.statistics, pool.doubted, pool.retired)
        if kept is not None
    )
    kept_back = sum(
        each.choices[0].sum()
        for learner in learners
        for record in learner.records()
        if record.key.part == "front"
        for each in (record.local, record.retired)
    )
    assert told + kept_back == pytest.approx(4 * 5 + np.count_nonzero(picks), rel=1e-9)


def test_looks_become_rarer() -> None:
    """About 2.5 cube roots of the observations of a pool; one that was earned and not taken is
    kept, a second one is not."""
    learner = DeviceLearner(table(), CANS)
    learner.join([])
    truth, earned = bent_truth(), learner._state.choices.earned
    turns = []
    for t in range(400):
        learner.get_ready()
        turns.append(looks.its_turn(learner._state, 0))
        if turns[-1]:
            earned[0, 0] = 0.0  # taken
        learner.observe(4, Latencies(*(float(ms[4]) for ms in truth)), float(t))
    early, late = sum(turns[:200]), sum(turns[200:])
    assert 0 < late < early <= 3 * looks.CURIOSITY * (2 * 200) ** (1 / 3)
    waiting = [looks.its_turn(learner._state, 0) for _ in range(100)]
    assert not any(waiting)  # nothing was observed
    for t in range(100):
        learner.observe(4, Latencies(*(float(ms[4]) for ms in truth)), 400.0 + t)
    assert looks.its_turn(learner._state, 0)
    assert earned[0, 0] == 1.0


def test_what_looks_found_has_a_say_before_the_line_is_given_up() -> None:
    """Two observations a tenth below the line are believed in part."""
    learner = taught()
    state = learner._state
    assert state.choices.spread[0, 0] == 0.0
    before = state.mean[0, 0].copy()
    sums = state.choices.synced[0, 0]
    sums[:3, 6] = 2.0, 2.0 * 0.9 * before[6], 2.0 * (0.9 * before[6]) ** 2
    expected, open_, noise = looks.outlook(state, 0, 0)
    assert 0.9 * before[6] < expected[6] < 0.99 * before[6]
    assert expected[7] == before[7]  # nobody has seen it
    assert open_[6] / expected[6] ** 2 < open_[7] / expected[7] ** 2
    assert (noise[1:] > 0.0).all()


def test_a_look_spends_what_was_earned() -> None:
    learner = taught()
    state = learner._state
    state.choices.earned[0] = 1.0, 1e9  # nothing more is earned
    assert looks.look(state, 0, 5, np.zeros(9), state.physics.offered) != 5
    assert looks.look(state, 0, 5, np.zeros(9), state.physics.offered) == 5


def taught() -> DeviceLearner:
    """Alone, after two hundred inferences with two choices; of the others it can only guess."""
    learner, edge = DeviceLearner(table(), CANS), EdgeAggregator(CANS)
    rng = np.random.default_rng(5)
    for upload in learner.join([(row, 100.0 * float(WORK[row])) for row in (8, 1, 3, 5)]):
        learner.adopt(edge.merge(upload))
    for t in range(200):
        learner.get_ready()
        row = 5 if t % 20 else 1  # tensors of two sizes, or nobody knows what the others take
        times = (float(ms[row] * rng.lognormal(0.0, 0.05)) for ms in near_tie())
        for upload in learner.observe(row, Latencies(*times), float(t)):
            learner.adopt(edge.merge(upload, float(t)))
    learner.get_ready()
    return learner


def near_tie():
    """Every choice takes about as long as the others."""
    return 100.0 * WORK, np.where(WORK < 1.0, 5.0, 0.0), 100.0 * (1.0 - WORK)


def test_what_is_expected_to_be_saved_is_that_of_a_normal_deviate() -> None:
    """Against the mean of many draws, also where the choice is expected to be better."""
    draws = np.random.default_rng(2).standard_normal(400_000)
    for worse in (-3.0, -1.0, 0.0, 1.0, 2.5):
        saved = np.maximum(draws - worse, 0.0).mean()
        assert looks.improvement(worse) == pytest.approx(saved, abs=4e-3)


def test_suspicion_falls_where_the_line_fits_and_stays_where_nothing_was_seen() -> None:
    nobody = DeviceLearner(table(), STRAIGHT)
    assert not nobody._state.choices.used
    fits, rng = DeviceLearner(table(), CANS), np.random.default_rng(5)
    fits.join([])
    fits.get_ready()
    assert deviations.suspicion(fits._state, 0, 0) == pytest.approx(deviations.SUSPECTED)
    for t in range(400):
        row = int(rng.integers(9))
        straight = (100.0 * WORK[row], 10.0, 20.0 * (1.0 - WORK[row]))
        fits.observe(row, Latencies(*(ms * rng.lognormal(0.0, 0.05) for ms in straight)), float(t))
        fits.get_ready()
    assert deviations.suspicion(fits._state, 0, 0) < 0.6 * deviations.SUSPECTED


def test_what_was_surely_too_slow_is_out_unless_the_others_wait_for_long() -> None:
    learner = taught()
    state = learner._state
    state.choices.least[0, 2] = 1000.0
    nothing, wait = np.zeros(9), np.full(9, 2000.0)
    assert barring.too_slow(state, 0, nothing, 50.0).tolist() == [c == 2 for c in range(9)]
    wait[2] = 0.0
    assert not barring.too_slow(state, 0, wait, 1000.0)[2]


def test_a_look_is_no_change_of_habit() -> None:
    """Also on a server that tells its load: the choice before it is the one to come back to."""
    learner, busy = taught(), Load(wait_ms=1.0, joined=2, arrivals=1e-4, utilisation=0.2)
    rng, looks = np.random.default_rng(6), 0
    for t in range(300):
        choice = learner.select(Context(load=busy, uniform=0.5))
        before = learner.crowd._habit.taken
        learner.crowd.observe_wait(choice, 1.0)
        if choice.looked:
            looks += 1
            assert learner.crowd._habit.taken == before
        else:
            assert learner.crowd._habit.taken == choice.row
        times = (float(ms[choice.row] * rng.lognormal(0.0, 0.05)) for ms in near_tie())
        learner.observe(choice, Latencies(*times), 200.0 + t)
    assert 0 < looks < 30


def test_choices_are_looked_into_when_a_twentieth_more_is_known() -> None:
    learner = taught()
    state = learner._state
    state.choices.tested[0, 0] = state.synced[0, 0, -1] + state.local[0, 0, -1]
    state.local[0, 0, -1] += 1.0
    assert not deviations.is_due(state, 0, 0)
    state.local[0, 0, -1] += 0.06 * state.choices.tested[0, 0]
    assert deviations.is_due(state, 0, 0)
    assert not deviations.is_due(state, 0, 0)
    learner.observe(5, Latencies(5000.0, 20.0, 10.0), 300.0)
    assert state.choices.tested[0, 0] == 0.0, "what is far slower is looked into at once"


def test_nothing_is_looked_at_that_could_cost_three_times_the_best() -> None:
    picks, _, _ = played(CANS, bent_truth(), 400)
    total = sum(bent_truth())
    assert total[picks].max() <= 3.0 * total.min()


# --- the pool ------------------------------------------------------------------------------------


def test_the_past_is_not_carried_over_at_a_thousand_times_its_level() -> None:
    """Three milliseconds where next to nothing was expected say nothing about what takes fifty."""
    usual = SufficientStatistics.of([1.0], 50.0).scaled(9.0 / 2509.0)
    pool = replace(usual, weight=1.0)
    for _ in range(40):
        pool = pool + replace(usual, weight=1.0)
    tiny = replace(SufficientStatistics.of([4e-5], 3.0).scaled(0.5), weight=1.0)
    past = pooling.carried_over(pool.pack(1), tiny.pack(1), 1e-9)
    assert 50.0 < past[1] / past[0] < 100.0


def test_a_past_that_became_ten_times_as_slow_is_carried_over_so() -> None:
    usual = replace(SufficientStatistics.of([1.0], 50.0).scaled(9.0 / 2509.0), weight=1.0)
    pool = usual
    for _ in range(40):
        pool = pool + usual
    slow = replace(SufficientStatistics.of([1.0], 500.0).scaled(9.0 / 250_009.0), weight=1.0)
    past = pooling.carried_over(pool.pack(1), slow.pack(1), 1e-9)
    assert past[1] / past[0] == pytest.approx(500.0, rel=1e-6)


def test_a_choice_that_the_pool_never_heard_of_sounds_no_alarm() -> None:
    pools = new_pools(1, 1, 1, choices=2)
    usual = replace(SufficientStatistics.of([1.0], 50.0).scaled(9.0 / 2509.0), weight=1.0)
    new = replace(SufficientStatistics.of([4e-5], 3.0).scaled(0.5), weight=1.0)
    of_usual = np.array([[1.0, 0.0], [50.0, 0.0], [2500.0, 0.0], *np.zeros((2, 2))])
    of_new = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 9.0], *np.zeros((2, 2))])
    for _ in range(40):
        pooling.merge(pools, 0, 0, usual.pack(1), 0, 0.0, 1e-9, True, 1, of_usual)
    for _ in range(5):
        pooling.merge(pools, 0, 0, new.pack(1), 0, 0.0, 1e-9, True, 1, of_new)
    assert pools.epoch[0, 0] == 0
    slow = replace(SufficientStatistics.of([1.0], 400.0).scaled(9.0 / 160_009.0), weight=1.0)
    for _ in range(4):
        said = np.array([[1.0, 0.0], [400.0, 0.0], [160_000.0, 0.0], *np.zeros((2, 2))])
        pooling.merge(pools, 0, 0, slow.pack(1), 0, 0.0, 1e-9, True, 1, said)
    assert pools.epoch[0, 0] == 1
    total = pools.choices + pools.choices_retired + pools.choices_doubted
    assert total[0, 0, 0, 1] == pytest.approx(5.0, rel=0.2)  # and a little of the past


def told(pools, choice: int, latency: float, expected: float, times: int = 1) -> None:
    """Uploads to a pool of two choices that have no work in common, each of so many observations
    and judged by what was expected."""
    row, said = np.eye(2)[choice], np.zeros((5, 2))
    said[:3, choice] = times * np.array([1.0, latency, latency**2])
    worth = times * 9.0 / (9.0 + expected**2)
    each = SufficientStatistics.of(row, latency).scaled(worth)
    upload = replace(each, weight=float(times), count=times).pack(2)
    pooling.merge(pools, 0, 0, upload, int(pools.epoch[0, 0]), 0.0, 1e-9, True, 2, said)


def a_server_that_became_slower():
    """The raw input (choice 0) takes 100 ms instead of 10; a late cut takes next to nothing."""
    pools = new_pools(1, 1, 2, choices=2)
    for number in range(40):
        told(pools, 0, 10.0 + (-1) ** number, 10.0)
        told(pools, 1, 0.1, 0.1)
    for _ in range(3):
        told(pools, 0, 100.0, 100.0)
    assert pools.epoch[0, 0] == 1
    return pools


def test_that_a_pool_became_slower_is_no_noise_of_it() -> None:
    """The first slow observations were merged before the third sounded the alarm."""
    found = deviations.scattered(a_server_that_became_slower().choices[0, 0], 0.0)
    assert 0.03 < np.sqrt(found[0]) / 3.0 < 0.3, "a share of latency: 10 % were observed"


def test_late_cuts_do_not_hide_that_a_server_is_well_again() -> None:
    pools = a_server_that_became_slower()
    for _ in range(20):
        told(pools, 0, 100.0, 100.0)
    for _ in range(3):
        assert pools.epoch[0, 0] == 1
        for _ in range(9):
            told(pools, 1, 0.1, 0.1, times=3)
        told(pools, 0, 10.0, 100.0)
    assert pools.epoch[0, 0] == 2


# --- what a device divides by before it tells ----------------------------------------------------

LINE, PLAYED, OTHER = 100.0 * WORK, 4, 8


def divided_by(
    slower: float = 1.0, off: float = 1.0, others: float = 200.0, deviating: float = 0.1
) -> float:
    """Of a device that takes so many times as long as others that play the same choice, as all of
    them played another one, where that choice takes so many times as long as its line says."""
    return estimating.pace_by_choice(a_member(slower, off, others), 0, 0, LINE, 0.09, deviating)


def a_member(slower: float = 1.0, off: float = 1.0, others: float = 200.0) -> LearnerState:
    state = fleet_state(table(), CANS, Hyperparameters(), 1)
    truth = LINE.copy()
    truth[PLAYED] *= off
    for sums, factor, number in (
        (state.choices.own[0, 0], slower, 50.0),
        (state.choices.synced[0, 0], 1.0, others),
    ):
        for choice in (PLAYED, OTHER):
            latency, scatter = factor * truth[choice], 0.1 * truth[choice]
            sums[:3, choice] = number, number * latency, number * (latency**2 + scatter**2)
    state.physics.own[0, 0, -1], state.synced[0, 0, -1] = 100.0, 2.0 * others
    return state


def test_a_line_that_is_off_makes_nobody_slow() -> None:
    """All devices of a pool would divide by that, and what was told before they did so would be on
    another scale."""
    assert divided_by(off=1.3) == pytest.approx(1.0, abs=0.01)
    assert divided_by(off=1.3, deviating=0.001) > 1.05


def test_who_takes_longer_than_others_divides_by_how_much() -> None:
    assert divided_by(slower=1.2) == pytest.approx(1.2, abs=0.01)
    assert divided_by(slower=1.2, off=1.3) == pytest.approx(1.2, abs=0.02)


def test_who_is_alone_divides_by_nothing() -> None:
    assert divided_by(slower=1.2, off=1.3, others=50.0) == 1.0


@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.05, 1.0), deviating=st.floats(0.01, 0.5))
@settings(max_examples=30, deadline=None)
def test_what_it_divides_by_equals_the_dense_one(seed, spread, deviating) -> None:
    rng = np.random.default_rng(seed)

    def some(count: int) -> list[Row]:
        return [
            Row(np.zeros(1), 0.0, worth=rng.uniform(0.1, 1.0), ms=rng.lognormal(3.0), choice=choice)
            for choice in rng.integers(0, 6, count)
        ]

    own, others = some(8), some(12)
    policy = replace(CANS, parts=[replace(each, spread=spread) for each in CANS.parts])
    state = fleet_state(table(), policy, Hyperparameters(), 1)
    for sums, rows in ((state.choices.own, own), (state.choices.synced, own + others)):
        sums[0, 0, :3] = reference_cans.by_choice(rows, 9)
    state.physics.own[0, 0, -1], state.synced[0, 0, -1] = len(own), len(own + others)
    found = estimating.pace_by_choice(state, 0, 0, LINE, 0.2, deviating)
    dense, unlike = reference_cans.divisor(own, own + others, LINE, 0.2, deviating, spread)
    assert found == pytest.approx(dense, rel=1e-9)
    told = [0.0, 0.0] if unlike is None else [unlike, 1.0]
    assert state.physics.unlike[0, 0].tolist() == pytest.approx(told, rel=1e-9, abs=1e-12)


# --- how much the devices of a pool differ -------------------------------------------------------


def told_of_its_pace(slower: float, others: float = 200.0) -> list[float]:
    state = a_member(slower, others=others)
    estimating.pace_by_choice(state, 0, 0, LINE, 0.09, 0.1)
    told: list[float] = state.physics.unlike[0, 0].tolist()
    return told


def test_within_two_standard_errors_a_pace_speaks_for_being_alike() -> None:
    """One of 50 measurements that scatter by a tenth, against 200: an error of about 2 %."""
    assert told_of_its_pace(1.0)[0] < told_of_its_pace(1.02)[0] < 0.0
    assert told_of_its_pace(1.1)[0] > 0.005
    assert told_of_its_pace(1.1)[1] == 1.0
    assert told_of_its_pace(9.0)[0] < deviations.MOST_UNLIKE**2
    assert told_of_its_pace(1.1, others=50.0) == [0.0, 0.0], "who is alone has nothing to tell"


def test_what_members_tell_overrules_what_is_assumed() -> None:
    state = a_member()
    assert estimating.spread_of_devices(state, 0, 0) == pytest.approx(0.3), (
        "nobody has told anything"
    )
    told = state.choices.synced[0, 0]
    told[3, PLAYED], told[4, PLAYED] = -0.1, 40.0
    assert estimating.spread_of_devices(state, 0, 0) < 0.08
    told[3, PLAYED], told[4, PLAYED] = -1.0, 400.0
    assert estimating.spread_of_devices(state, 0, 0) == deviations.LEAST_UNLIKE
    told[3, PLAYED] = 400.0 * 0.2**2
    assert estimating.spread_of_devices(state, 0, 0) == pytest.approx(0.2, abs=0.01)
    told[3, PLAYED] = 400.0
    assert estimating.spread_of_devices(state, 0, 0) == deviations.MOST_UNLIKE
    told[3, PLAYED] = -1.0
    state.physics.unlike[0, 0, 0] = 0.2**2
    assert estimating.spread_of_devices(state, 0, 0) == pytest.approx(0.2), (
        "it surely differs itself"
    )
    state.physics.apart[0, 0] = True
    assert estimating.spread_of_devices(state, 0, 0) == 1.0, "who has changed goes its own way"


def test_among_equals_nobody_divides_by_its_noise() -> None:
    state = a_member(slower=1.02)
    assert estimating.pace_by_choice(state, 0, 0, LINE, 0.09, 0.1) > 1.015
    state.choices.synced[0, 0, 3, PLAYED], state.choices.synced[0, 0, 4, PLAYED] = -1.0, 400.0
    assert estimating.pace_by_choice(state, 0, 0, LINE, 0.09, 0.1) == pytest.approx(1.0, abs=0.002)


def test_an_observation_carries_what_its_device_tells() -> None:
    state = a_member()
    state.physics.unlike[0, 0] = 0.01, 1.0
    for holder in (state.choices.local, state.choices.startling):
        deviations.note_choice(holder, state, 0, 0, PLAYED, 12.0)
        deviations.note_choice(holder, state, 0, 0, PLAYED, 12.0)
        assert holder[0, 0, 3:, PLAYED].tolist() == [0.02, 2.0]
    deviations.note_own(state, 0, 0, OTHER, 12.0, 1.0)
    assert not state.choices.own[0, 0, 3:].any(), "of its own it needs no reminder"


def test_statistics_of_another_number_of_choices_add_up() -> None:
    sums = np.array([[1.0, 3.0], [2.0, 4.0], [4.0, 6.0], [-0.1, 0.2], [1.0, 2.0]])
    few = SufficientStatistics(np.eye(1), np.ones(1), choices=sums[:, :1])
    more = SufficientStatistics(np.eye(1), np.ones(1), choices=sums)
    none = SufficientStatistics.zero(1)
    assert (few + more).choices.tolist() == (sums * [2.0, 1.0]).tolist()
    assert (more - few).choices.tolist() == (sums * [0.0, 1.0]).tolist()
    assert (few + none).equals(few)
    assert not few.equals(more)
    assert policy_named("cans-no-deviations") is STRAIGHT


# --- what physics and reason bound ---------------------------------------------------------------


def bent_state() -> LearnerState:
    """Of a device whose choices deviate from their lines."""
    state = taught()._state
    state.choices.spread[0] = [0.2, 0.0, 0.2]
    return state


def test_what_has_more_work_bounds_what_has_less_from_above() -> None:
    """Of a choice that nobody played a bent line may say anything; physics does not."""
    state = bent_state()
    kappa, width = state.physics.kappa, state.choices.width[0, 2]
    state.mean[0, 2] = [20.0, 90.0, 18.0, 15.0, 12.0, 9.0, 6.0, 3.0, 0.0]
    width[:] = 0.5
    width[1] = 40.0  # it was never seen
    bending.bound(state, 0, 2, left=np.array([0.1, 1.0, *[0.1] * 7]))
    mean, low = state.mean[0, 2], state.physics.low[0, 2]
    assert mean[1] == pytest.approx(20.0 + 0.5 * kappa), "the whole back-end takes no less"
    assert low[1] == pytest.approx(18.0 - 0.5 * kappa), "the next one takes no more"
    assert state.choices.width[0, 2, 1] == pytest.approx((mean[1] - low[1]) / kappa)
    assert mean[[0, 2, 3]].tolist() == [20.0, 18.0, 15.0]


@pytest.mark.parametrize(("unseen", "guess"), [(5, 2.0), (6, 40.0)])
def test_what_was_measured_is_not_bounded_by_what_a_line_says_of_others(unseen, guess) -> None:
    """A line that is off makes hardly any work take hardly any time, or all of it: the choices next
    to it, which were played, keep what was measured of them, and bound it."""
    measured = np.array([20.0, 18.0, 16.0, 14.0, 12.0, 10.0, 8.0, 3.0, 0.0])
    state, seen = bent_state(), np.arange(9) != unseen
    state.mean[0, 2] = np.where(seen, measured, guess)
    state.choices.width[0, 2] = 0.5
    bending.bound(state, 0, 2, left=np.where(seen, 0.05, 1.0))
    mean = state.mean[0, 2]
    np.testing.assert_array_equal(mean[seen], measured[seen])
    assert measured[unseen + 1] - 1.0 <= mean[unseen] <= measured[unseen - 1] + 1.0


def test_what_was_measured_below_nothing_is_expected_to_take_nothing() -> None:
    """Where noise is far more than latency averages may be negative, and no promise."""
    state = taught()._state
    state.choices.synced[0, 0, :3, 6] = 3.0, -15.0, 75.0
    expected, _, _ = looks.outlook(state, 0, 0)
    assert expected[6] == 0.0


def test_a_look_may_not_cost_three_times_the_choice_in_whose_place_it_is() -> None:
    """What is expected to take least, and may take most, is no measure of itself."""
    state = taught()._state
    state.choices.width[0] = 0.0
    state.choices.width[0, 1, 1] = 150.0
    mean = np.array([9.0, 0.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0])
    assert barring.affordable(state, 0, mean, 8).tolist() == [*[False] * 4, *[True] * 5]
    assert barring.affordable(state, 0, mean, 1).all()


def test_bounds_count_less_the_more_was_observed_unless_a_choice_was_hardly_seen() -> None:
    state = bent_state()
    state.mean[0] = 10.0
    state.physics.low[0] = [[7.0] * 9, [10.0] * 9, [6.0] * 9]
    state.choices.local[0] = state.local[0] = 0.0
    state.choices.synced[0, :, 0] = [*[40.0] * 8, 3.0]
    for observed, counts in ((20.0, 1.0), (100.0, 1.0), (400.0, 0.5), (10_000.0, 0.1)):
        state.synced[0, :, -1] = observed
        expected = [*[30.0 - 5.0 * counts] * 8, 30.0 - 5.0]
        np.testing.assert_allclose(scoring.lower_bounds(state, 0), expected)


def test_a_look_is_considered_again_when_more_is_known_of_one_part() -> None:
    """A server that has just changed is known anew by observations that are few beside those of the
    front-end."""
    state = taught()._state
    state.choices.earned[0] = 1.0, 1e9
    state.synced[0, 0, -1], state.synced[0, 2, -1] = 5_000.0, 30.0
    state.choices.considered[0] = state.synced[0, :, -1] + state.local[0, :, -1]
    assert not looks.its_turn(state, 0)
    state.synced[0, 2, -1] += 5.0
    assert looks.its_turn(state, 0)
    state.choices.considered[0] = state.synced[0, :, -1] + state.local[0, :, -1]
    state.synced[0, 2, -1] = 3.0  # a new epoch
    assert looks.its_turn(state, 0)


def test_what_is_open_of_two_parts_is_less_than_the_sum() -> None:
    state = bent_state()
    state.choices.synced[0] = state.choices.local[0] = 0.0  # hardly seen: bounds count in full
    state.mean[0] = 10.0
    state.physics.low[0] = [[7.0] * 9, [10.0] * 9, [6.0] * 9]
    np.testing.assert_allclose(scoring.lower_bounds(state, 0), 30.0 - 5.0)
    state.physics.low[0, 1] = 12.0  # physics says more than the mean
    np.testing.assert_allclose(scoring.lower_bounds(state, 0), 32.0 - 5.0)
    state.choices.spread[0] = 0.0
    np.testing.assert_allclose(scoring.lower_bounds(state, 0), 7.0 + 12.0 + 6.0)


def test_a_link_is_not_tried_for_its_uncertainty_alone() -> None:
    """What may be under way for three times the surest choice's latency is out, however low its
    bound is."""
    state = taught()._state
    state.mean[0], state.physics.low[0], state.choices.width[0] = 0.0, 0.0, 0.0
    state.mean[0, 0, 8] = 10.0
    state.mean[0, 1, :8] = 29.0
    assert not np.isinf(scoring.physical_scores(state, 0)[0])
    state.mean[0, 1, 0] = 31.0
    scores = scoring.physical_scores(state, 0)
    assert np.isinf(scores[0])
    assert not np.isinf(scores[8])
    state.mean[0, 1, 0], state.choices.width[0, 1, 0] = 0.0, 31.0  # as long as nothing is known
    assert np.isinf(scoring.physical_scores(state, 0)[0])
    state.choices.width[0, 1, 0] = 29.0
    assert not np.isinf(scoring.physical_scores(state, 0)[0])


def test_where_everything_is_ruled_out_nothing_is() -> None:
    """Noise many times the latency: half a millisecond is surely too slow beside none, which a link
    promises that nobody knows."""
    state = taught()._state
    state.mean[0], state.physics.low[0], state.choices.width[0] = 0.0, 0.0, 0.0
    state.mean[0, 1, :8], state.mean[0, 1, 1] = 12.0, 0.0
    state.choices.width[0, 1, 1] = 1.0
    state.choices.seen[0], state.choices.least[0] = 0.0, 0.0
    state.choices.seen[0, 8] = state.choices.least[0, 8] = 0.5
    assert scoring.physical_scores(state, 0).argmin() == 8
    assert np.isfinite(scoring.physical_scores(state, 0)[8])


def test_nothing_is_looked_at_that_cannot_be_better() -> None:
    """The same front-end as local has, and a way to a server besides."""
    state = taught()._state
    beaten = looks.no_better(state, 0, 8)
    assert beaten.tolist() == [False] * 8 + [True]
    state.physics.floor[0, 8, 7] = 1.0
    assert looks.no_better(state, 0, 8).tolist() == [False] * 7 + [True, True]
    assert not looks.no_better(state, 0, 3)[[2, 4]].any()


def test_a_server_that_little_is_known_of_is_not_judged_by_hardly_any_work() -> None:
    state = taught()._state
    state.mean[0, 2] = [100.0, 50.0, 20.0, 10.0, 5.0, 3.0, 1.9, 0.1, 0.0]
    state.synced[0, 2, -2] = 5.0
    assert np.flatnonzero(looks.misleading(state, 0)).tolist() == [6, 7]
    state.synced[0, 2, -2] = 500.0
    assert not looks.misleading(state, 0).any()


@pytest.mark.parametrize("seed", range(3))
def test_a_link_that_was_never_observed_does_not_keep_a_device_where_it_began(seed) -> None:
    # Nothing is timed in a trace, and every other choice sends the same number of bytes.
    alone = Settings(policy="cans", world="trace", trace=Path("vit_b16-96"), devices=1, rounds=400)
    record = play(alone, "reference", seed, alone.make_world())
    lost, taken = record.regret_ms[300:].sum(), record.expected_ms[300:].sum()
    assert lost < 0.05 * taken


@pytest.mark.parametrize("hung", [False, True])
def test_how_long_a_server_hung_is_no_property_of_a_choice(hung: bool) -> None:
    """One request in three waits until the server goes on; its caller was answered by the device.
    Once it has stopped doing that, who went by the average would stay away for many minutes."""
    learner = DeviceLearner(make_world("layered", "resnet50", 1).table, CANS)
    edge, local, rng = EdgeAggregator(CANS), learner.table.local, np.random.default_rng(7)

    def took(milliseconds: float) -> float:
        return float(milliseconds * rng.lognormal(0.0, 0.05))

    for upload in learner.join([(local, took(120.0)) for _ in range(5)]):
        learner.adopt(edge.merge(upload))
    for upload in learner.observe_probe([took(2.0), took(2.5)], tell=True):
        learner.adopt(edge.merge(upload))
    for time in range(180):
        learner.get_ready()
        here = time % 2 == 0
        stops = time % 6 == 1
        latencies = Latencies(took(120.0), None, None)
        if not here:
            latencies = Latencies(None, 900.0 if stops else took(3.0), took(1.0))
        row = local if here else 0
        for upload in learner.observe(row, latencies, float(time), hung=hung and stops):
            learner.adopt(edge.merge(upload, float(time)))
    learner.get_ready()
    expected, _ = learner.part_predictions("link")
    assert (expected[0] < 20.0) == hung
    assert (learner.select().row != local) == hung
