"""An accuracy budget: lossy choices that break it are found in the background, and left out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cans.errors import InputError
from cans.live.device.accuracy import Accuracy, AccuracyBudget
from cans.live.device.device import Device
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from tests.live.onnx_models import convolutions
from tests.live.running import running, terms


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convolutions(tmp_path_factory.mktemp("accuracy") / "m.onnx")


@pytest.fixture(scope="module")
def model(file: Path) -> SplitModel:
    cutting = Cutting()
    return split(load_model(file, cutting), cutting, codecs=["uint8"])


def used(file: Path, model: SplitModel, state: Path, **budget: Any) -> tuple[Accuracy, Any]:
    """What a device that chose at random for a while has found, and its last report."""
    first = model.inputs[0]
    image = np.random.default_rng(0).standard_normal(first.shape).astype(first.dtype)
    options: dict[str, Any] = {"state": state, "seed": 3, "accuracy": AccuracyBudget(**budget)}
    with (
        running(model, terms=terms("random")) as server,
        Device(server.address, file, "test", **options) as device,
    ):
        for _ in range(12 * model.last):
            device.infer({first.name: image})
            time.sleep(0.01)  # comparisons run beside
            if len(device._requests.accuracy.out) == model.last:
                break
        device.infer({first.name: image})
        return device._requests.accuracy, device.last


def test_what_breaks_the_budget_is_left_out(file: Path, model: SplitModel, tmp_path: Path) -> None:
    accuracy, last = used(file, model, tmp_path, max_error=1e-9)
    assert accuracy.out == {(point, "uint8") for point in range(model.last)}
    assert last.point == model.last  # nothing else is allowed
    assert all(max(accuracy.errors_of(point, "uint8")) > 1e-9 for point in range(model.last))
    assert "out for their accuracy" in last.why


def test_what_keeps_the_budget_stays(file: Path, model: SplitModel, tmp_path: Path) -> None:
    accuracy, _ = used(file, model, tmp_path, max_error=10.0, min_agreement=0.01)
    assert accuracy.out == frozenset()
    assert any(accuracy.errors_of(point, "uint8") for point in range(model.last))


def test_a_budget_that_makes_no_sense_is_refused(file: Path) -> None:
    with pytest.raises(InputError, match="--max-error"):
        AccuracyBudget(max_error=0.0)
    with pytest.raises(InputError, match="--min-agreement"):
        AccuracyBudget(min_agreement=1.5)
    with pytest.raises(InputError, match="whole model"):
        Device("localhost:1", file, local=False, accuracy=AccuracyBudget(max_error=0.1))
