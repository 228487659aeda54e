"""Every law of `cans.learning.laws`, over every policy, at random hyper-parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cans.learning.laws import Case, Law, random_table, yield_checks
from cans.learning.laws.estimating import does_not_drift
from cans.learning.policies import ABLATIONS, POLICIES, VARIANTS, Hyperparameters

hyperparameters = st.builds(
    Hyperparameters,
    ridge=st.floats(1e-3, 5.0),
    alpha=st.floats(0.01, 10.0),
    beta_ms=st.just(0.0) | st.floats(0.1, 300.0),
    offline_runs=st.integers(0, 6),
    sampling_ms=st.just(0.0) | st.floats(0.1, 50.0),
    fleet_threshold=st.floats(0.5, 20.0),
)


def laws() -> list[object]:
    return [
        pytest.param(policy, law, id=f"{policy.name}-{law.__name__}")
        for policy in (POLICIES | ABLATIONS | VARIANTS).values()
        for law in yield_checks(policy)
    ]


@pytest.mark.parametrize(("policy", "law"), laws())
def test_law(policy, law: Law) -> None:
    examples = 1 if law is does_not_drift or policy.name not in POLICIES else 10

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(
        numbers=hyperparameters,
        seed=st.integers(0, 2**32),
        choices=st.integers(3, 12),
        widths=st.tuples(*[st.integers(1, 3)] * 3),
    )
    def holds(numbers: Hyperparameters, seed: int, choices: int, widths) -> None:
        draw = np.random.default_rng(seed).random
        law(Case(policy, random_table(draw, choices, widths), numbers, draw))

    holds()
