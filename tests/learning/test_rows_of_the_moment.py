"""Theta is per unit of work: what was learned at one size of input holds at every other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cans.learning import DeviceLearner, Latencies, PartitionTable, policy_named

FULL = PartitionTable(
    "toy", ["input", "half", "end"],
    front=[[0.0, 0.0], [2.0, 1.0], [4.0, 2.0]],
    link=[[8.0, 1.0], [2.0, 1.0], [0.0, 0.0]],
    server=[[4.0, 2.0], [2.0, 1.0], [0.0, 0.0]],
)  # fmt: skip


def at(share: float) -> PartitionTable:
    """Rows of an input that is a share of the largest one; what is per operation stays."""
    scale = np.array([share, 1.0])
    return replace(
        FULL, front=FULL.front * scale, link=FULL.link * scale, server=FULL.server * scale,
        scaled=True,
    )  # fmt: skip


def truth(table: PartitionTable, row: int) -> Latencies:
    return Latencies(
        float(table.front[row] @ [80.0, 1.0]),
        float(table.link[row] @ [100.0, 2.0]),
        float(table.server[row] @ [10.0, 0.5]),
    )


@pytest.mark.parametrize("policy", ["cans", "linucb", "fedlinucb-dw", "fedlinucb-decouple"])
def test_experience_with_two_sizes_predicts_a_third(policy: str) -> None:
    learner = DeviceLearner(FULL, policy_named(policy))
    for upload in learner.join([]):
        assert upload.sequence == 0
    tables = [at(0.25), at(1.0)]
    for i in range(240):
        table = tables[i % 2]
        learner.use_rows(table)
        row = i // 2 % 3
        learner.observe(row, truth(table, row), time=float(i))
    local = learner._state.uses_local.all()
    if not local:  # estimates use what the server returned: give it back what was observed
        from cans.learning import EdgeAggregator

        edge = EdgeAggregator(policy_named(policy))
        for upload in learner.flush():
            learner.adopt(edge.merge(upload, 300.0))
        for upload in learner.flush():
            learner.adopt(edge.merge(upload, 301.0))
    middle = at(0.5)
    learner.use_rows(middle)
    predicted = learner.predictions()[0]
    for row in range(3):
        known = truth(middle, row)
        assert predicted[row] == pytest.approx(sum(known), rel=0.1, abs=2.0)


def test_going_back_and_forth_changes_nothing() -> None:
    learner = DeviceLearner(FULL, policy_named("cans"))
    learner.join([])
    for i in range(30):
        learner.observe(i % 3, truth(FULL, i % 3), time=float(i))
    learner.get_ready()
    before = learner.predictions()[0].copy()
    learner.use_rows(at(0.5))
    learner.use_rows(FULL)
    np.testing.assert_allclose(learner.predictions()[0], before, rtol=1e-9)
