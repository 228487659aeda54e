"""The supplement's lemmas, against an independent transcription, and against runs."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cans.learning.confidence import (
    Evidence,
    communication_bound,
    gamma_all,
    gamma_local,
    log_growth,
    radius,
    regret_bound,
)
from cans.learning.policies import Hyperparameters, policy_named
from cans.simulation.engines.arrays import evidence
from cans.simulation.run import Settings, play

FRONT = Evidence(
    dimension=1, devices=8, rounds=2500, participations=800, noise=5.0, norm=1.0, parameter=0.77,
    ridge=0.01, alpha=1.0, delta=0.00625, offline=5, offline_strength=12.0, spread=0.2,
)  # fmt: skip
BACK = Evidence(
    dimension=2, devices=25, rounds=2500, participations=2500, noise=5.0, norm=1.3, parameter=321.0,
    ridge=0.01, alpha=0.5, delta=0.00625,
)  # fmt: skip


def test_front_by_hand() -> None:
    """Lemmas 1, 2, 4 with the numbers written out: N-bar = 8 x 5 + 800 = 840."""
    everything = 5 * sqrt(1 * log(1 + 840 / 0.01) + 2 * log(8 * 2500 / 0.00625)) + 0.2 * sqrt(840)
    buffers = 5 * sqrt(log(1 + 800 / 0.01) + 2 * log(8 * 2500**2 / 0.00625)) + 0.2 * sqrt(800)
    assert gamma_all(FRONT) == pytest.approx(everything, rel=1e-12)
    assert gamma_local(FRONT) == pytest.approx(buffers, rel=1e-12)
    beta = 0.1 * 0.77 + 3 * everything + 8 * sqrt(2) * buffers
    assert radius(FRONT) == pytest.approx(beta, rel=1e-12)
    growth = log(1 + 800 / 12.01)
    assert log_growth(FRONT) == pytest.approx(growth, rel=1e-12)
    bound = 2 * beta * (8 * growth + sqrt(2 * 9 * 800 * growth))
    assert regret_bound(FRONT) == pytest.approx(bound, rel=1e-12)
    assert communication_bound(FRONT) == pytest.approx(2 * log(2) * 9 * growth, rel=1e-12)


def test_back_by_hand() -> None:
    """The same with M_k = M, N_k = T, no offline runs, epsilon = 0, alpha = 1/2, d = 2."""
    everything = 5 * sqrt(2 * log(1 + 2500 * 1.69 / 0.02) + 2 * log(25 * 2500 / 0.00625))
    buffers = 5 * sqrt(2 * log(1 + 2500 * 1.69 / 0.01) + 2 * log(25 * 2500**2 / 0.00625))
    beta = 0.1 * 321 + sqrt(13.5) * everything + 25 * buffers
    assert radius(BACK) == pytest.approx(beta, rel=1e-12)
    growth = 2 * log(1 + 2500 * 1.69 / (2 * 0.01))
    bound = 2 * beta * (25 * 2 * growth + sqrt(2 * 13.5 * 2500 * growth))
    assert regret_bound(BACK) == pytest.approx(bound, rel=1e-12)
    assert communication_bound(BACK) == pytest.approx(2 * log(2) * 27 * growth, rel=1e-12)


@given(
    more=st.integers(1, 5000), part=st.sampled_from([FRONT, BACK]),
    name=st.sampled_from(["rounds", "participations", "devices"]),
)  # fmt: skip
def test_radius_and_bounds_are_positive_and_grow(more, part, name) -> None:
    grown = replace(part, **{name: getattr(part, name) + more})
    for function in (radius, regret_bound, communication_bound):
        assert 0 < function(part) <= function(grown)


@given(factor=st.floats(1.01, 100.0), part=st.sampled_from([FRONT, BACK]))
def test_noise_widens_and_confidence_costs(factor, part) -> None:
    assert radius(replace(part, noise=part.noise * factor)) > radius(part)
    assert radius(replace(part, delta=part.delta / factor)) > radius(part)
    stronger = replace(part, offline_strength=part.offline_strength + factor)
    assert log_growth(stronger) < log_growth(part), "offline experience leaves less to learn"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("model", ["vgg16", "resnet50", "vit_b16"])
def test_runs_stay_below_the_bounds(model) -> None:
    numbers = Hyperparameters(beta_ms="theory")
    settings = Settings(model, "fedlinucb-dw", hyperparameters=numbers)
    world, policy = settings.make_world(), policy_named("fedlinucb-dw")
    for seed in range(3):
        episode = world.episode(settings.rounds, seed, numbers.offline_runs)
        parts = [evidence(part, world, policy, episode, numbers) for part in policy.parts]
        record = play(settings, "fast", seed, world)
        bound = sum(regret_bound(each) for part in parts for each in part)
        assert 0 < record.regret_ms.sum() < bound
        for uploads, part in zip(record.part_uploads, parts, strict=True):
            assert 0 < uploads < sum(communication_bound(each) for each in part)
