"""Every function of the physics of `cans`, and of `pooling.py`, against dense formulas, SciPy, or
by hand."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

import reference_cans
from cans.learning.arithmetic import estimating, exchange, observing, pooling, scoring
from cans.learning.arithmetic.arrays import ANEW, LearnerState, new_pools
from cans.learning.arithmetic.layout import fleet_state, mark_viable
from cans.learning.arithmetic.linear import cholesky, inverse_from, times
from cans.learning.arithmetic.nonnegative import nonnegative_theta, pinned
from cans.learning.policies import POLICIES, Hyperparameters, policy_named
from cans.learning.table import PartitionTable
from reference_cans import Row

TABLE = PartitionTable(
    "toy", ["input", "a", "b", "end"],
    front=[[0, 0], [1, 2], [3, 2], [4, 4]],
    link=[[4, 1], [2, 1], [1, 1], [0, 0]],
    server=[[4], [3], [1], [0]],
)  # fmt: skip
CANS = POLICIES["cans"]
FRONT, LINK, SERVER = range(3)

seeds = st.integers(0, 2**32)


def random_rows(rng: np.random.Generator, d: int, count: int) -> list[Row]:
    """Noisy observations of a theta that is positive here and there."""
    theta = np.maximum(rng.normal(10, 15, d), 0.0)
    x = rng.random((count, d))
    y = x @ theta + rng.normal(0, 1, count)
    return [Row(x[i], y[i], rng.uniform(0.2, 1.0)) for i in range(count)]


def packed(rows: list[Row], d: int, count: int | None = None) -> np.ndarray:
    """The vector of sums that stands for these rows."""
    sigma, b, s, n = reference_cans.sums(rows, d)
    return np.array([*sigma.ravel(), *b, s, n, len(rows) if count is None else count])


def a_state(policy=CANS, devices: int = 2) -> LearnerState:
    return fleet_state(TABLE, policy, Hyperparameters(), devices)


def pooled(state: LearnerState, device: int, part: int, rows: list[Row]) -> None:
    """The device has this pool and has estimated with it."""
    state.synced[device, part] = packed(rows, state.rows.shape[2])
    estimate(state, device, part)


def estimate(state: LearnerState, device: int, part: int) -> None:
    """From the sums as they are, whoever wrote them."""
    state.physics.stale[device, part], state.physics.updates[device, part] = True, ANEW
    scoring.refresh(state, device)


# --- observe -------------------------------------------------------------------------------------


def test_importance_is_one_over_the_noise() -> None:
    assert [observing.importance(ms) for ms in (0.0, 3.0, 9.0, -9.0)] == [1.0, 0.5, 0.1, 0.1]


def test_a_latency_is_as_far_off_as_the_times_it_is_slower_or_faster() -> None:
    """Where noise is a share of latency: a tenth of what was expected as ten times as much."""
    assert observing.keenness(300.0, 300.0) == observing.keenness(300.0, 900.0) == 1.0
    assert 0.9 * observing.keenness(300.0, 30.0) == pytest.approx(9.0 / 10.0**0.5, rel=0.03)
    assert observing.keenness(3.0, 0.3) == pytest.approx(1.0, abs=0.03)
    assert observing.keenness(3.0, -3.0) == 1.0


def reference_latency(state: LearnerState, *given) -> float:
    """What the noise of an observation is judged by."""
    expected, residual = observing.expectation(state, *given)
    return given[-1] if residual > observing.FAR else expected


def ten_rows(slope: float = 20.0) -> list[Row]:
    """The front-end of `TABLE`: 20 ms per unit of each feature, 1 ms of noise."""
    return [Row(TABLE.front[1 + i % 3], TABLE.front[1 + i % 3].sum() * slope + (-1.0) ** i)
            for i in range(12)]  # fmt: skip


def test_the_reference_is_the_latency_until_something_is_expected() -> None:
    state = a_state()
    _, per_ms = state.sums_at_zero[FRONT, 2], state.sums_per_ms[FRONT, 2]
    state.synced[1, FRONT] = packed(ten_rows()[:6], 2)
    assert reference_latency(state, 1, FRONT, per_ms, -8.0) == 8.0
    pooled(state, 1, FRONT, ten_rows()[:7])  # d + 5
    expected = float(TABLE.front[2] @ state.physics.theta[1, FRONT])
    assert 20.0 < expected < 30.0
    assert reference_latency(state, 1, FRONT, per_ms, -8.0) == pytest.approx(expected)


def test_the_reference_is_the_latency_of_something_else() -> None:
    state = a_state()
    per_ms = state.sums_per_ms[FRONT, 2]
    pooled(state, 1, FRONT, ten_rows())
    expected = float(TABLE.front[2] @ state.physics.theta[1, FRONT])
    far = 5 * state.physics.deviation[1, FRONT] / sqrt(9 / (9 + expected**2))
    for beyond, reference in ((0.99 * far, expected), (1.01 * far, expected + 1.01 * far)):
        found = reference_latency(state, 1, FRONT, per_ms, expected + beyond)
        assert found == pytest.approx(reference)
    found = reference_latency(state, 1, FRONT, per_ms, expected - 3 * far)
    assert found == pytest.approx(expected)


def test_learning_adds_a_weighted_row_at_the_pace_of_an_average_device() -> None:
    state = a_state()
    physics = state.physics
    physics.divisor[1, FRONT] = 2.0
    physics.stale[1, FRONT] = False
    for _ in range(2):
        observing.learn(
            state, 1, FRONT, state.sums_at_zero[FRONT, 2], state.sums_per_ms[FRONT, 2], 9.0
        )
    h = sqrt(0.1)
    own = [Row(h * TABLE.front[2], h * 9.0)] * 2
    buffer = [Row(h * TABLE.front[2], h * 4.5)] * 2
    np.testing.assert_allclose(physics.own[1, FRONT], packed(own, 2), rtol=1e-12)
    np.testing.assert_allclose(state.local[1, FRONT], packed(buffer, 2), rtol=1e-12)
    assert physics.stale[1, FRONT]
    assert not physics.own[0].any()
    assert not state.local[0].any()


# --- estimate ------------------------------------------------------------------------------------


def nonnegative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    inverse = inverse_from(cholesky(a))
    return nonnegative_theta(a, b, times(inverse, b), inverse)


def ridge_problem(seed: int, d: int, ridge: float):
    rng = np.random.default_rng(seed)
    x = rng.random((int(rng.integers(1, 30)), d))
    y = x @ rng.normal(3, 10, d) + rng.normal(0, 1, len(x))
    a = x.T @ x + ridge * np.eye(d)
    rows, values = np.vstack([x, sqrt(ridge) * np.eye(d)]), np.hstack([y, np.zeros(d)])
    return nonnegative(a, x.T @ y), nnls(rows, values)[0], a, x.T @ y


def objective(a: np.ndarray, b: np.ndarray, theta: np.ndarray) -> float:
    return float(theta @ a @ theta - 2.0 * theta @ b)


@given(seed=seeds, d=st.integers(1, 6), exponent=st.floats(-6, 0))
@settings(max_examples=25)
def test_theta_is_nonnegative_least_squares(seed, d, exponent) -> None:
    """What SciPy's explains, up to a few of the millionths that are let go."""
    theta, solved, a, b = ridge_problem(seed, d, 10.0**exponent)
    assert (theta >= 0).all()
    np.testing.assert_allclose(
        theta,
        reference_cans.nonnegative(a, b, 0.0),
        rtol=1e-4,
        atol=1e-5 * max(1.0, np.abs(theta).max()),
    )
    best = objective(a, b, solved)
    assert objective(a, b, theta) <= best + 1e-4 * abs(best)


def test_theta_is_pinned_to_zero_where_it_would_be_negative() -> None:
    problems = [ridge_problem(seed, 4, 1e-3) for seed in range(200)]
    assert np.mean([(theta == 0).any() for theta, *_ in problems]) > 0.5


def test_a_coefficient_that_was_pinned_too_soon_is_let_go_again() -> None:
    """Four hundred runs of the first layer, which has hardly any of the last five features, and ten
    of the whole model: pinning alone ends with one coefficient that predicts 43 ms for it."""
    first = np.array([1.0, 0.0, 0.0, 0.0, 0.0086, 0.0156])
    whole, weights = np.ones(6), (0.9, 3e-6)
    a = 400 * weights[0] * np.outer(first, first) + 10 * weights[1] * np.outer(whole, whole)
    a += 1e-9 * np.eye(6)
    b = 400 * weights[0] * 0.7 * first + 10 * weights[1] * 1800.0 * whole
    theta = nonnegative(a, b)
    assert theta @ first == pytest.approx(0.7, rel=0.01)
    assert theta @ whole == pytest.approx(1800.0, rel=0.01)


def test_an_indefinite_inverse_ends_the_search() -> None:
    inverse = np.array([[0.0, 0.0], [0.0, 1.0]])
    theta = pinned(times(inverse, np.array([-1.0, 2.0])), inverse)
    assert theta.tolist() == [0.0, 2.0]


@given(seed=seeds, d=st.integers(1, 4), count=st.integers(0, 12))
def test_noise_is_read_off_the_residuals(seed, d, count) -> None:
    rng = np.random.default_rng(seed)
    rows, theta = random_rows(rng, d, count), rng.random(d) * 10
    sigma = reference_cans.sums(rows, d)[0]
    found = estimating.noise_variance(packed(rows, d), theta, sigma, d)
    assert found == pytest.approx(reference_cans.noise(rows, theta), rel=1e-9)


def test_noise_by_hand() -> None:
    """Residuals 1 and -1 and a mean square of 101; worth 2, so nothing is left of the freedom."""
    rows = [Row(np.ones(1), 11.0), Row(np.ones(1), 9.0)]
    vector, sigma = packed(rows, 1), np.array([[2.0]])
    found = estimating.noise_variance(vector, np.array([10.0]), sigma, 1)
    assert found == pytest.approx((2 + 2 * 0.09 * 101) / (1 + 2))
    found = estimating.noise_variance(vector, np.array([10.0]), sigma, 5)
    assert found == pytest.approx((2 + 2 * 0.09 * 101) / 2)
    assert estimating.noise_variance(np.zeros(5), np.array([10.0]), np.zeros((1, 1)), 1) == 0.0
    rounded = packed([Row(np.ones(1), 0.0)], 1)
    rounded[1] = 1e-12  # b a little too large for its squares: no negative variance
    assert estimating.noise_variance(rounded, np.array([1.0]), np.zeros((1, 1)), 1) == 0.0


@given(seed=seeds, d=st.integers(1, 4), count=st.integers(0, 12), spread=st.floats(0.01, 1.0))
def test_pace_is_the_posterior_mean(seed, d, count, spread) -> None:
    rng = np.random.default_rng(seed)
    rows, theta, variance = random_rows(rng, d, count), rng.random(d) * 10, rng.uniform(0.1, 9)
    found = estimating.pace(packed(rows, d), theta, variance, spread)
    assert found == pytest.approx(reference_cans.pace(rows, theta, variance, spread), rel=1e-9)
    # the mean of N(1, spread^2), by weighted least squares on s with one row for the prior
    x = np.array([[row.x @ theta * sqrt(row.worth / variance)] for row in rows] + [[1 / spread]])
    y = np.array([row.y * sqrt(row.worth / variance) for row in rows] + [1 / spread])
    assert found == pytest.approx(max(np.linalg.lstsq(x, y, rcond=None)[0][0], 0.05), rel=1e-6)


def test_pace_is_one_of_nothing_and_never_below_a_twentieth() -> None:
    theta = np.array([10.0])
    backwards = packed([Row(np.ones(1), -1000.0)] * 9, 1)
    assert estimating.pace(backwards, theta, 1.0, 0.5) == 0.05
    assert estimating.pace(backwards, theta, 0.0, 0.5) == 1.0
    assert estimating.pace(np.zeros(5), theta, 1.0, 0.5) == 1.0


def dense_part(state: LearnerState, part: int, rows: list[Row], own: list[Row], policy):
    """The transcription's estimate of the same rows."""
    numbers = reference_cans.Numbers(ridge=state.ridge, kappa=policy.physical.kappa)
    x = TABLE.columns(policy.parts[part].explains)
    viable = state.physics.viable.tolist()
    dense = reference_cans.Part(x, numbers, policy.parts[part].spread, viable)
    dense.copy, dense.own, dense.bends = rows, own, bool(state.choices.bends[part])
    dense.estimate(False)
    return dense


@given(seed=seeds, part=st.integers(0, 2), kappa=st.floats(0.1, 4.0))
@settings(max_examples=20)
def test_estimates_equal_the_dense_ones(seed, part, kappa) -> None:
    rng = np.random.default_rng(seed)
    policy = replace(CANS, ridge=0.01, physical=replace(CANS.physical, kappa=kappa))
    d = TABLE.columns(policy.parts[part].explains).shape[1]
    rows, own = random_rows(rng, d, 8), random_rows(rng, d, 4)
    state = a_state(policy)

    def wide(rows: list[Row]) -> np.ndarray:
        return packed([replace(r, x=np.hstack([r.x, np.zeros(2 - d)])) for r in rows], 2)

    state.synced[1, part], state.local[1, part] = wide(rows[:5]), wide(rows[5:])
    state.physics.own[1, part] = wide(own)
    state.physics.stale[:] = False
    state.physics.stale[1, part] = True
    scoring.refresh(state, 1)
    dense = dense_part(state, part, rows, own, policy)
    physics = state.physics
    for ours, theirs in (
        (physics.theta[1, part, :d], dense.theta),
        (physics.pace[1, part], dense.pace),
        (physics.divisor[1, part], dense.divisor),
        (physics.deviation[1, part], dense.sigma),
        (state.mean[1, part], dense.mean),
        (physics.low[1, part], dense.lower),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    inverse = np.linalg.inv(reference_cans.sums(rows, d)[0] + 0.01 * np.eye(d))
    norm = np.sqrt(np.einsum("ci,ij,cj->c", dense.x, inverse, dense.x))
    np.testing.assert_allclose(state.norm[1, part], norm, rtol=1e-6, atol=1e-9)
    assert not physics.stale.any()
    assert not state.mean[0].any(), "another device was estimated"
    assert not np.delete(state.mean[1], part, axis=0).any(), "a part that is not stale was"


def estimates(state: LearnerState) -> tuple[np.ndarray, ...]:
    physics = state.physics
    return state.norm, state.mean, physics.low, physics.theta, physics.pace, physics.divisor


def computed_anew(state: LearnerState) -> LearnerState:
    """The same sums, and what follows from them alone."""

    def copied(values):
        arrays = {k: v.copy() for k, v in values._asdict().items() if isinstance(v, np.ndarray)}
        return values._replace(**arrays)

    fresh = copied(state)._replace(physics=copied(state.physics))
    fresh.physics.stale[:], fresh.physics.updates[:] = True, ANEW
    scoring.refresh(fresh, 0)
    return fresh


@given(seed=seeds, exponent=st.floats(-9.0, 0.0))
@settings(max_examples=20)
def test_what_is_brought_up_to_date_row_by_row_is_what_all_rows_say(seed, exponent) -> None:
    """After every observation, between uploads, downloads and observations that come together."""
    rng = np.random.default_rng(seed)
    state = a_state(replace(CANS, ridge=10.0**exponent), devices=1)
    kept = 0
    for _ in range(100):
        choice = int(rng.integers(4))
        for part, x in enumerate(state.rows[:, choice]):
            if x.any() and rng.random() < 0.9:
                latency = float(x.sum() * 20.0 * rng.lognormal(0.0, 0.1))
                observing.observe_physically(state, 0, part, choice, latency)
        event, part = rng.random(), int(rng.integers(3))
        if event < 0.1:
            continue  # the next ones come before anybody estimates
        if event < 0.2:
            pooling.send(state, 0, part)
            pooling.acknowledge(state, 0, part)
            pooling.take_in(state, 0, part, packed(ten_rows(), 2), 0, 9, 0.0)
        scoring.refresh(state, 0)
        kept = max(kept, int(state.physics.updates.max()))
        for ours, fresh in zip(estimates(state), estimates(computed_anew(state)), strict=True):
            np.testing.assert_allclose(ours, fresh, rtol=1e-4, atol=1e-4)
    assert kept > 5, "everything was computed anew"


def test_without_the_physics_an_estimate_is_the_papers() -> None:
    """Any sign, beta of Eq. 3 for the width, no pace."""
    parts = tuple(replace(part, spread=0.0) for part in CANS.parts)
    policy = replace(
        CANS, ridge=0.5, parts=parts, physical=replace(CANS.physical, nonnegative=False, kappa=0.0)
    )
    state = a_state(policy)
    rows = [Row(np.array([1.0, 0.0]), 5.0), Row(np.array([1.0, 1.0]), 2.0)]
    state.physics.own[0, FRONT] = packed(rows, 2)
    pooled(state, 0, FRONT, rows)
    a = reference_cans.sums(rows, 2)[0] + 0.5 * np.eye(2)
    theta = np.linalg.solve(a, reference_cans.sums(rows, 2)[1])
    assert theta.min() < 0
    np.testing.assert_allclose(state.physics.theta[0, FRONT], theta, rtol=1e-9)
    norm = np.sqrt(np.einsum("ci,ij,cj->c", TABLE.front, np.linalg.inv(a), TABLE.front))
    np.testing.assert_allclose(
        state.physics.low[0, FRONT], TABLE.front @ theta - 50.0 * norm, rtol=1e-9
    )
    assert state.physics.pace[0, FRONT] == 1.0


@given(seed=seeds, choices=st.integers(2, 6), columns=st.integers(1, 3))
def test_floors_are_the_best_of_all_viable_choices(seed, choices, columns) -> None:
    from cans.learning.arithmetic.viability import floors

    rng = np.random.default_rng(seed)
    x = rng.random((choices, columns)) * (rng.random((choices, columns)) < 0.7)
    low = rng.random(choices) * (rng.random(choices) < 0.7)
    viable = rng.random(choices) < 0.7
    before = low.copy()
    found = estimating.apply_floors(low, floors(x), viable)
    np.testing.assert_allclose(found, reference_cans.floors(low, x, viable), rtol=1e-12)
    np.testing.assert_array_equal(low, before)


# --- select --------------------------------------------------------------------------------------


def test_scores_are_lower_bounds_of_what_can_win() -> None:
    state = a_state()
    mark_viable(state.physics, np.array([True, False, True, True]))
    rng = np.random.default_rng(1)
    state.physics.low[1], state.mean[1] = 1.0 + rng.random((2, 3, 4))
    state.physics.low[1, :, 1] = state.mean[1, :, 1] = 3.0  # worse than the others
    state.mean[1, SERVER, 0] = state.mean[1, FRONT, 3] = 2.0
    scores = state.physics.low[1].sum(axis=0) + 0.01 * state.mean[1].sum(axis=0)
    found = scoring.physical_scores(state, 1)
    np.testing.assert_allclose(found, [scores[0], np.inf, scores[2], scores[3]])
    state.mean[1, SERVER, 0] = 2.01  # the server is the slower one: everything may win
    found = scoring.physical_scores(state, 1)
    assert np.isfinite(found).all()
    assert found[1] == pytest.approx(scores[1])


def retry_state() -> LearnerState:
    """Choices of 20, 30, 24 and 40 ms, known to 10 % each; the second was left out."""
    state = a_state(devices=1)
    mark_viable(state.physics, np.array([True, False, True, True]))
    state.mean[0] = [[0, 10, 20, 40], [6, 6, 3, 0], [14, 14, 1, 0]]
    state.physics.low[0] = state.mean[0] - [[0, 1, 1, 4], [0.5, 0.5, 0.5, 0], [1.5, 1.5, 1, 0]]
    state.norm[0], state.physics.deviation[0] = 1.0, [0.2, 0.1, 0.7]  # widths of 2 ms together
    state.choices.width[0] = [[0.2], [0.1], [0.7]]
    return state


def tried(state: LearnerState) -> bool:
    state.choices.width[0] = state.physics.deviation[0].reshape(-1, 1) * state.norm[0]
    return bool(np.isfinite(scoring.physical_scores(state, 0)[1]))


def test_what_was_left_out_is_tried_where_it_may_save_a_tenth() -> None:
    state = retry_state()
    assert not tried(state)
    state.physics.low[0, :, 1] = [1.9, 6.0, 10.0]
    assert tried(state)
    state.physics.low[0, :, 1] = [2.1, 6.0, 10.0]
    assert not tried(state)


def test_what_is_charged_counts_in_every_comparison() -> None:
    """A wait that is known comes on top of scores, of the server's speed, and of what a choice that
    was left out may save."""
    state = retry_state()
    plain = scoring.physical_scores(state, 0)
    charge = np.array([3.0, 3.0, 3.0, 0.0])
    found = scoring.charged_scores(state, 0, charge, state.physics.offered)
    np.testing.assert_allclose(found[[0, 2, 3]], (plain + charge)[[0, 2, 3]])
    assert np.isinf(found[1])
    waits = np.array([27.0, 27.0, 27.0, 0.0])  # the server's 14 ms and this: more than 40 here
    assert np.isfinite(scoring.charged_scores(state, 0, waits, state.physics.offered)).all()
    state.physics.low[0, :, 1] = [1.9, 6.0, 10.0]  # 17.9 of 20: a tenth is saved
    cheap = np.array([0.0, 0.0, 0.0, 0.0])
    assert np.isfinite(scoring.charged_scores(state, 0, cheap, state.physics.offered))[1]
    cheap[1] = 0.2  # 18.1 of 20
    assert np.isinf(scoring.charged_scores(state, 0, cheap, state.physics.offered))[1]
    state.physics.low[0, :, 1] = [11.0, 6.0, 10.0]
    state.mean[0, :, 1] = [5.0, 6.0, 6.9]  # 17.9 ms, 19.9 at most: surely better than 20
    cheap[1] = 0.05
    assert np.isfinite(scoring.charged_scores(state, 0, cheap, state.physics.offered))[1]
    cheap[1] = 0.15
    assert np.isinf(scoring.charged_scores(state, 0, cheap, state.physics.offered))[1]


def test_nothing_is_tried_before_the_best_is_known() -> None:
    state = retry_state()
    state.physics.low[0, :, 1] = 0.0
    state.physics.deviation[0] = [0.2, 0.1, 1.71]  # widths of 4.02 ms, of 20
    assert not tried(state)
    state.physics.deviation[0] = [0.2, 0.1, 1.69]
    assert tried(state)


def test_what_may_cost_three_times_as_much_is_not_tried() -> None:
    state = retry_state()
    state.physics.low[0, :, 1] = 0.0
    state.mean[0, :, 1] = [39.0, 6.0, 1.0]  # with the server's 14 ms for everything: 59
    assert tried(state)
    state.mean[0, :, 1] = [41.0, 6.0, 1.0]
    assert not tried(state)


def test_what_was_left_out_and_is_surely_better_may_win() -> None:
    state = retry_state()
    state.mean[0, :, 1] = [5.0, 6.0, 6.9]
    state.physics.low[0, :, 1] = state.mean[0, :, 1]
    assert tried(state), "19.9 ms at most"
    assert scoring.physical_scores(state, 0).argmin() == 1
    state.mean[0, SERVER, 1] = 7.1
    state.physics.low[0, :, 1] = state.mean[0, :, 1] + 0.2
    assert not tried(state)


def test_a_codec_that_is_not_offered_is_never_tried() -> None:
    state = retry_state()
    state.physics.offered[1] = False
    state.physics.low[0, :, 1] = 0.0
    assert not tried(state)
    state.mean[0, SERVER, 0] = 41.0  # the server is the slower one
    assert not tried(state)


def test_where_the_server_is_no_part_of_its_own_nothing_is_said_of_its_speed() -> None:
    parts = (CANS.parts[0], replace(CANS.parts[1], name="back", explains=("link", "server")))
    state = a_state(replace(CANS, parts=parts))
    mark_viable(state.physics, np.array([True, False, True, True]))
    state.mean[:] = 9.0
    assert np.isinf(scoring.physical_scores(state, 0)).tolist() == [False, True, False, False]


# --- merge ---------------------------------------------------------------------------------------


@given(seed=seeds, d=st.integers(1, 3), level=st.floats(0.1, 9.0), ridge=st.floats(1e-4, 1.0))
@settings(max_examples=25)
def test_surprise_and_carry_over_equal_the_dense_ones(seed, d, level, ridge) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, d, int(rng.integers(0, 30)))
    upload = [replace(row, y=row.y * level) for row in (*rows, *random_rows(rng, d, 1))[:2]]
    pool = reference_cans.Pool(d, ridge, rows)
    z, found_level, room = pool.residual(upload)
    before, sent = packed(rows, d), packed(upload, d)
    assert pooling.surprise(before, sent, ridge, d) == pytest.approx(z, rel=1e-5, abs=1e-9)
    none = pooling.NO_CHOICES
    if z != 0.0:
        found = pooling.against_line(before, sent, ridge, d, none, none)
        assert found == pytest.approx((z, room), rel=1e-5, abs=1e-9)
    past = pooling.carried_over(before, sent, ridge)
    np.testing.assert_allclose(
        past, packed(pool.past_at(found_level), d, count=0), rtol=1e-5, atol=1e-9
    )
    np.testing.assert_array_equal(before, packed(rows, d))


def test_a_pool_is_tested_once_it_knows_enough() -> None:
    x = np.ones(1)
    rows = [Row(x, 10.0 + (-1) ** i) for i in range(6)]
    upload = packed([Row(x, 40.0)], 1)
    assert pooling.surprise(packed(rows[:5], 1), upload, 0.1, 1) == 0.0
    assert pooling.surprise(packed(rows, 1), upload, 0.1, 1) > 3.0
    assert pooling.surprise(packed(rows, 1), upload, 0.1, 2) == 0.0
    assert pooling.surprise(packed(rows, 1), packed([], 1), 0.1, 1) == 0.0
    quiet = packed([Row(x, 0.0)] * 9, 1)
    assert pooling.surprise(quiet, upload, 0.1, 1) == 0.0


@pytest.mark.parametrize(
    ("level", "worth"), [(0.5, 0.0), (0.999, 0.0), (4.0, 3.0)], ids=["faster", "the same", "slower"]
)
def test_the_past_is_carried_over_to_a_slower_level_alone(level, worth) -> None:
    rows = [Row(np.ones(1), 10.0)] * 9
    past = pooling.carried_over(packed(rows, 1), packed([Row(np.ones(1), 10 * level)], 1), 1e-12)
    assert past[-2] == pytest.approx(worth)
    assert past[-1] == 0.0
    if worth:
        assert past[1] / past[0] == pytest.approx(10 * level), "theta is at the new level"
        assert past[-3] == pytest.approx(900 / 3)


def test_little_past_is_carried_over_whole() -> None:
    rows = [Row(np.ones(1), 10.0, 0.25)]
    past = pooling.carried_over(packed(rows, 1), packed([Row(np.ones(1), 20.0)], 1), 1e-12)
    assert past[-2] == pytest.approx(0.25)


def test_trust_is_full_up_to_three_deviations() -> None:
    values = [pooling.trust(z) for z in (0.0, 3.0, -3.0, 6.0, -12.0)]
    assert values == [1.0, 1.0, 1.0, 0.5, 0.25]


def sounded(*residuals: float) -> list[bool]:
    alarm = np.zeros(2)
    return [observing.alarmed(alarm, residual, 1.0) for residual in residuals]


def test_three_observations_far_off_sound_the_alarm() -> None:
    assert sounded(100.0, 100.0, 100.0) == [False, False, True]  # 4, 8, 12 > 11
    assert sounded(*[-100.0] * 3) == [False, False, True]  # 3, 6, 9 > 8
    assert sounded(100.0, 100.0, 5.0, 2.0, 2.01) == [False, False, False, False, True]
    assert sounded(-100.0, -100.0, -3.0, -1.0, -1.01) == [False, False, False, False, True]
    assert not any(sounded(*[2.0] * 50))
    assert not any(sounded(*[-1.0] * 50))
    assert not any(sounded(*[100.0, -1.0, -1.0] * 20)), "one liar among honest devices"


def test_what_takes_next_to_nothing_does_not_say_that_nothing_became_faster() -> None:
    alarm = np.zeros(2)
    for _ in range(2):
        observing.alarmed(alarm, -100.0, 1.0)
        for _ in range(50):  # cuts that leave the server a tenth of a millisecond
            observing.alarmed(alarm, 0.0, 3.0, 0.03)
    assert alarm[1] > 5.0
    assert observing.alarmed(alarm, -100.0, 1.0)


@given(room=st.floats(0.0, 1.0))
def test_noise_alone_raises_no_alarm_whatever_room_it_has(room) -> None:
    """Page's sums are likelihood ratios: of noise alone their mean is 1 at most."""
    alarm = np.array([0.0, 4.0])
    deviates = np.linspace(-3.9, 3.9, 4001)
    density = np.exp(-0.5 * deviates**2)
    ratios = []
    for deviate in deviates:
        after = alarm.copy()
        observing.alarmed(after, -deviate, 1.0, room)
        ratios.append(np.exp(2.0 * (after[1] - alarm[1])))
    assert np.average(ratios, weights=density) < 1.001


def test_the_sums_never_fall_below_nothing() -> None:
    alarm = np.zeros(2)
    observing.alarmed(alarm, 0.5, 1.0)
    assert alarm.tolist() == [0.0, 0.0]
    observing.alarmed(alarm, 5.0, 1.0)
    assert alarm.tolist() == [3.0, 0.0]
    observing.alarmed(alarm, -2.0, 1.0)
    assert alarm.tolist() == [0.0, 1.0]


def test_merging_equals_the_dense_pool() -> None:
    """A long series of uploads, a change in the middle: sums, epochs and rounds after each."""
    rng = np.random.default_rng(4)
    pools, dense = new_pools(2, 3, 2), reference_cans.Pool(2, 0.01)
    for t in range(80):
        level = 1.0 if t < 40 else 3.0
        upload = [replace(row, y=row.y * level) for row in _same_theta(rng)]
        epoch = int(pools.epoch[1, LINK])
        pooling.merge(pools, 1, LINK, packed(upload, 2), epoch, float(t), 0.01, True, 2)
        dense.take(upload, dense.epoch, float(t))
        np.testing.assert_allclose(
            pools.statistics[1, LINK][:-1], packed(dense.rows, 2)[:-1], rtol=1e-7, atol=1e-9
        )
        assert pools.epoch[1, LINK] == dense.epoch
        assert pools.round[1, LINK] == t + 1
        np.testing.assert_allclose(pools.alarm[1, LINK], [dense.slower, dense.faster], atol=1e-7)
    assert dense.epoch == 1
    assert pools.time[1, LINK] == 79.0
    assert not pools.statistics[0].any()


def _same_theta(rng: np.random.Generator) -> list[Row]:
    x = rng.random((1, 2))
    return [Row(each, float(each @ [10.0, 20.0] * rng.lognormal(0, 0.05))) for each in x]


def test_a_pool_that_is_not_watched_takes_everything_whole() -> None:
    pools = new_pools(1, 3, 1)
    rows = [Row(np.ones(1), 10.0)] * 9 + [Row(np.ones(1), 1000.0)] * 9
    for t, row in enumerate(rows):
        pooling.merge(pools, 0, LINK, packed([row], 1), 0, 5.0 - t, 0.01, False, 1)
    np.testing.assert_allclose(pools.statistics[0, LINK], packed(rows, 1), rtol=1e-12)
    assert pools.epoch[0, LINK] == 0
    assert pools.round[0, LINK] == 18
    assert pools.time[0, LINK] == 5.0, "time never runs backwards"


def test_what_the_server_has_taken_in_is_added_to_our_copy() -> None:
    state = a_state()
    state.synced[1, LINK], state.local[1, LINK], state.sent[1, LINK] = 2.0, 4.0, 3.0
    state.heard[1, LINK], state.round[1, LINK] = 5.0, 6
    state.physics.stale[:] = False
    pooling.confirm(state, 1, LINK, 0, 7, 4.0)
    assert (state.synced[1, LINK] == 5.0).all()
    assert (state.local[1, LINK] == 1.0).all(), "observed since"
    assert not state.sent[1, LINK].any()
    assert state.heard[1, LINK] == 5.0, "time never runs backwards"
    assert state.physics.stale[1, LINK]
    assert not state.synced[0].any()


@pytest.mark.parametrize(("epoch", "round_"), [(1, 9), (0, 6)], ids=["another epoch", "older"])
def test_a_copy_that_is_newer_or_of_another_epoch_is_left_alone(epoch, round_) -> None:
    state = a_state()
    state.synced[1, LINK], state.local[1, LINK], state.sent[1, LINK] = 2.0, 3.0, 3.0
    state.round[1, LINK] = 6
    pooling.confirm(state, 1, LINK, epoch, round_, 4.0)
    assert (state.synced[1, LINK] == 2.0).all()
    assert not state.local[1, LINK].any()


def test_an_upload_of_an_ended_epoch_is_retired() -> None:
    pools = new_pools(1, 3, 1)
    pools.epoch[0, LINK] = 2
    pooling.merge(pools, 0, LINK, packed([Row(np.ones(1), 10.0)], 1), 1, 5.0, 0.01, True, 1)
    assert not pools.statistics.any()
    np.testing.assert_allclose(pools.retired[0, LINK], packed([Row(np.ones(1), 10.0)], 1))
    assert pools.round[0, LINK] == 0


def test_what_is_taken_off_an_upload_is_kept_as_doubted() -> None:
    pools = new_pools(1, 3, 1)
    rows = [Row(np.ones(1), 10.0 + (-1) ** i) for i in range(9)]
    pools.statistics[0, LINK] = packed(rows, 1)
    upload = packed([Row(np.ones(1), 40.0)], 1)
    pooling.merge(pools, 0, LINK, upload, 0, 5.0, 0.01, True, 1)
    both = pools.statistics[0, LINK] - packed(rows, 1) + pools.doubted[0, LINK]
    np.testing.assert_allclose(both, upload, rtol=1e-9)
    assert 0.0 < pools.doubted[0, LINK, -2] < 1.0
    assert pools.doubted[0, LINK, -1] == 0.0, "doubted weight stands for no observation"


def test_a_surprise_goes_out_alone() -> None:
    state = a_state(POLICIES["cans"])
    pooled(state, 1, FRONT, ten_rows())
    at_zero, per_ms = state.sums_at_zero[FRONT, 2], state.sums_per_ms[FRONT, 2]
    expected, _ = observing.expectation(state, 1, FRONT, per_ms, 0.0)
    observing.learn(state, 1, FRONT, at_zero, per_ms, expected)
    observing.learn(state, 1, FRONT, at_zero, per_ms, 50.0 * expected)
    pooling.send(state, 1, FRONT)
    assert state.sent[1, FRONT, -1] == 1.0
    assert state.sent[1, FRONT, -3] > state.local[1, FRONT, -3] / 2
    pooling.acknowledge(state, 1, FRONT)
    assert state.local[1, FRONT, -1] == 1.0
    pooling.send(state, 1, FRONT)
    np.testing.assert_array_equal(state.sent[1, FRONT], state.local[1, FRONT])


def test_one_of_many_keeps_back_no_more_than_its_share() -> None:
    """1,200 observations are known of a front-end; of them this device has made a few, or most."""

    def kept_back(own: float) -> int:
        state = a_state(POLICIES["cans"])
        pooled(state, 1, FRONT, [row for _ in range(100) for row in ten_rows()])
        state.choices.synced[1, FRONT, 0] = 200.0
        state.physics.own[1, FRONT, -1] = state.choices.own[1, FRONT, 0, 2] = own
        at_zero, per_ms = state.sums_at_zero[FRONT, 2], state.sums_per_ms[FRONT, 2]
        expected, _ = observing.expectation(state, 1, FRONT, per_ms, 0.0)
        for number in range(1, 300):
            observing.learn(state, 1, FRONT, at_zero, per_ms, expected, choice=2)
            if exchange.upload_is_due(state, 1, FRONT):
                return number
        raise AssertionError("never told")

    assert kept_back(1200.0) == exchange.HEARTBEAT
    # Whichever is first, growth of the determinant or of what is known of the choice.
    few, more = kept_back(12.0), kept_back(48.0)
    assert few < more < 100
    assert exchange.patience(a_state(POLICIES["cans"]), 1, FRONT) == exchange.MORE, "alone"


def test_after_a_surprise_the_next_three_are_told_together() -> None:
    state = a_state(POLICIES["cans"])
    pooled(state, 1, FRONT, [row for _ in range(10) for row in ten_rows()])
    at_zero, per_ms = state.sums_at_zero[FRONT, 2], state.sums_per_ms[FRONT, 2]
    expected, _ = observing.expectation(state, 1, FRONT, per_ms, 0.0)

    def told_after(latency: float) -> float:
        observing.learn(state, 1, FRONT, at_zero, per_ms, latency)
        if not exchange.upload_is_due(state, 1, FRONT):
            return 0.0
        pooling.send(state, 1, FRONT)
        count = float(state.sent[1, FRONT, -1])
        pooling.acknowledge(state, 1, FRONT)
        return count

    assert [told_after(expected) for _ in range(5)] == [0.0] * 5
    assert told_after(50.0 * expected) == 1.0, "alone"
    assert [told_after(expected) for _ in range(4)] == [0.0, 0.0, 8.0, 0.0]


def test_who_is_surprised_again_and_again_is_no_longer_heard_at_once() -> None:
    state = a_state(POLICIES["cans"])
    pooled(state, 1, FRONT, [row for _ in range(10) for row in ten_rows()])
    at_zero, per_ms = state.sums_at_zero[FRONT, 2], state.sums_per_ms[FRONT, 2]
    expected, _ = observing.expectation(state, 1, FRONT, per_ms, 0.0)
    for _ in range(20):
        observing.learn(state, 1, FRONT, at_zero, per_ms, 50.0 * expected)
    assert state.startling[1, FRONT, -1] == 5.0


@pytest.mark.parametrize(("pool", "own"), [(0.0, 0.0), (1.0, 0.0), (2.0, 1.0), (30.0, 10.0)])
def test_what_surprises_is_as_rare_as_four_deviations_whatever_is_known(pool, own) -> None:
    """Student's t of so many degrees of freedom, two of them by the prior."""
    state = a_state()
    state.synced[1, FRONT, -2], state.local[1, FRONT, -2] = pool, own
    freedom = max(pool + own + 1 - 2, 0) + 2  # the one to come is counted
    limit = sqrt(freedom * (np.exp(16 / freedom) - 1))
    for sign in (1, -1):
        assert abs(observing.deviate(state, 1, FRONT, sign * 0.999 * limit)) < observing.SURPRISING
        assert abs(observing.deviate(state, 1, FRONT, sign * 1.001 * limit)) > observing.SURPRISING


def noisy_link(state: LearnerState) -> tuple[np.ndarray, np.ndarray, float]:
    """A link known from 200 observations that vary by half of what they take, and as many of the
    device's own; returns the sums of its choice 1 and what is expected of it, in ms."""
    at_zero, per_ms = state.sums_at_zero[LINK, 1], state.sums_per_ms[LINK, 1]
    x = TABLE.link[1]
    h = sqrt(observing.importance(40.0))
    rows = [Row(h * x, h * 40.0 * (1.0 + 0.5 * (-1.0) ** i)) for i in range(200)]
    pooled(state, 1, LINK, rows)
    for i in range(200):
        observing.learn(state, 1, LINK, at_zero, per_ms, 40.0 * (1.0 + 0.5 * (-1.0) ** i))
        estimate(state, 1, LINK)
    expected, _ = observing.expectation(state, 1, LINK, per_ms, 0.0)
    assert 35.0 < expected < 45.0
    return at_zero, per_ms, expected


def followed(state: LearnerState, latencies: list[float]) -> list[float]:
    """What is expected after each of these latencies."""
    at_zero, per_ms, _ = noisy_link(state)
    found = []
    for latency in latencies:
        observing.learn(state, 1, LINK, at_zero, per_ms, latency)
        estimate(state, 1, LINK)
        found.append(observing.expectation(state, 1, LINK, per_ms, 0.0)[0])
    return found


def test_a_device_follows_what_it_measures_whatever_its_pool_believes() -> None:
    """A noisy link that becomes ten times as slow: nothing contradicts it, nobody else speaks."""
    slower = followed(a_state(), [400.0] * 8)
    assert slower[1] < 60.0, "two may be accidents"
    assert slower[3] > 80.0
    assert slower[7] > 150.0
    faster = followed(a_state(), [4.0] * 12)
    assert faster[-1] < 20.0


def test_single_accidents_leave_a_device_where_it_was() -> None:
    found = followed(a_state(), [400.0, 40.0, 60.0, 20.0] * 10)
    assert max(found) < 60.0


def test_nobody_looks_for_changes_where_that_is_switched_off() -> None:
    state = a_state(policy_named("cans-no-detector"))
    assert max(followed(state, [400.0] * 8)) < 60.0


@pytest.mark.parametrize(("credit", "told"), [(0.99, 0.0), (0.9951, 1.0)])
def test_one_whole_credit_tells_of_one_surprise(credit, told) -> None:
    """This observation earns the last two-hundredth; what follows it is to be told until it is."""
    state = a_state()
    pooled(state, 1, FRONT, [row for _ in range(10) for row in ten_rows()])
    at_zero, per_ms = state.sums_at_zero[FRONT, 2], state.sums_per_ms[FRONT, 2]
    expected, _ = observing.expectation(state, 1, FRONT, per_ms, 0.0)
    state.credit[1, FRONT] = credit
    observing.learn(state, 1, FRONT, at_zero, per_ms, 50.0 * expected)
    assert state.startling[1, FRONT, -1] == told
    assert state.credit[1, FRONT] == pytest.approx(credit + 0.005 - told, abs=1e-9)
    waiting = []
    for _ in range(5):
        observing.learn(state, 1, FRONT, at_zero, per_ms, expected)
        waiting.append(float(state.awaited[1, FRONT]))
    assert waiting == ([3.0, 2.0, 1.0, 1.0, 1.0] if told else [0.0] * 5)


def test_many_observations_that_come_together_take_back_what_three_would() -> None:
    for observations, left in ((1.0, 6.0), (2.0, 4.0), (3.0, 2.0), (80.0, 2.0)):
        alarm = np.array([8.0, 0.0])
        observing.alarmed(alarm, 0.0, observations)
        assert alarm[0] == left
