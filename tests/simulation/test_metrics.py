"""What is reported of a run is what happened in it."""

from __future__ import annotations

import numpy as np
import pytest

import cans
from cans.simulation.metrics import running_mean


@pytest.fixture(scope="module")
def run():
    result = cans.simulate("vgg16", "fedlinucb-dw", seeds=1, rounds=400, engine="reference")
    return result.runs[0]


def test_totals_are_sums_of_the_rounds(run) -> None:
    assert run.regret_ms == pytest.approx(run.record.regret_ms.sum())
    assert run.mean_latency_ms == pytest.approx(run.record.latency_ms.mean())
    assert run.estimation_error_ms == pytest.approx(run.record.error_ms.mean())
    assert run.uploads == run.record.uploads.sum() == run.record.part_uploads.sum() > 0
    assert sum(run.picks.values()) == 400


def test_curves_end_at_the_totals(run) -> None:
    assert run.regret_curve()[-1] == pytest.approx(run.regret_ms)
    assert np.all(np.diff(run.regret_curve()) >= 0)
    assert run.latency_curve()[-1] == pytest.approx(run.mean_latency_ms)
    assert run.error_curve()[-1] == pytest.approx(run.estimation_error_ms)


def test_bytes_count_every_upload_and_its_download(run) -> None:
    front, back = run.record.part_uploads
    # d = 1: 1 + 1 + 3 numbers; d = 2: 3 + 2 + 3 numbers; 8 bytes each, there and back
    assert run.bytes == 2 * 8 * (5 * front + 8 * back)


def test_picks_by_type_add_up(run) -> None:
    assert set(run.picks_by_type) == {"orin-nano", "xavier-nx", "rpi5"}
    total: dict[int, int] = {}
    for picks in run.picks_by_type.values():
        for point, count in picks.items():
            total[point] = total.get(point, 0) + count
    assert total == run.picks


def test_the_oracle_has_no_regret_and_everyone_else_has_some() -> None:
    for policy in ("oracle", "neurosurgeon"):
        (run,) = cans.simulate("vit_b16", policy, seeds=1, rounds=200, engine="reference").runs
        assert run.regret_ms == 0.0
        assert run.estimation_error_ms == 0.0
    (run,) = cans.simulate("vit_b16", "random", seeds=1, rounds=200, engine="reference").runs
    assert run.regret_ms > 0


def test_running_mean() -> None:
    assert running_mean(np.array([2.0, 4.0, 6.0])).tolist() == [2.0, 3.0, 4.0]


def test_mean_and_deviation_over_seeds() -> None:
    result = cans.simulate("resnet50", "random", seeds=3, rounds=50, engine="reference")
    document = result.to_dict()
    regrets = [run["regret_ms"] for run in document["runs"]]
    assert document["mean"]["regret_ms"] == pytest.approx(np.mean(regrets))
    assert document["std"]["regret_ms"] == pytest.approx(np.std(regrets, ddof=1))
    mean = document["mean"]
    assert (result.mean_regret_ms, result.mean_latency_ms) == (
        mean["regret_ms"], mean["mean_latency_ms"]
    )  # fmt: skip
    assert (result.mean_uploads, result.mean_bytes) == (mean["uploads"], mean["bytes"])
    assert result.mean_estimation_error_ms is mean["estimation_error_ms"] is None  # no prediction


def test_the_mean_error_of_a_policy_that_predicts() -> None:
    result = cans.simulate("resnet50", "linucb", seeds=2, rounds=20, engine="reference")
    errors = [run.estimation_error_ms for run in result.runs]
    assert result.mean_estimation_error_ms == pytest.approx(np.mean(errors))
