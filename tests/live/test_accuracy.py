"""An accuracy budget: lossy choices that break it are found in the background, and left out."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cans.errors import InputError, RemoteProtocolError
from cans.live.device.choice.accuracy import Accuracy
from cans.live.device.device import Device
from cans.live.server.fleet.accuracy import FleetAccuracy
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from cans.live.wire.account import Account, account_in, account_out
from cans.live.wire.accuracy import AccuracyBudget, Compared
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
    assert all((accuracy.worst_error(point, "uint8") or 0) > 1e-9 for point in range(model.last))
    assert "out for their accuracy" in last.why


def test_what_keeps_the_budget_stays(file: Path, model: SplitModel, tmp_path: Path) -> None:
    accuracy, _ = used(file, model, tmp_path, max_error=10.0, min_agreement=0.01)
    assert accuracy.out == frozenset()
    assert any(accuracy.worst_error(point, "uint8") for point in range(model.last))


def test_a_budget_that_makes_no_sense_is_refused(file: Path) -> None:
    with pytest.raises(InputError, match="--max-error"):
        AccuracyBudget(max_error=0.0)
    with pytest.raises(InputError, match="--min-agreement"):
        AccuracyBudget(min_agreement=1.5)
    with pytest.raises(InputError, match="whole model"):
        Device("localhost:1", file, local=False, accuracy=AccuracyBudget(max_error=0.1))


def test_the_server_s_budget_holds_too_and_what_devices_find_is_shared(
    file: Path, model: SplitModel, tmp_path: Path
) -> None:
    """Two devices without a budget of their own find that nothing keeps the server's; a third
    knows it from the start, and says so."""
    first = model.inputs[0]
    image = np.random.default_rng(0).standard_normal(first.shape).astype(first.dtype)
    everything = {(point, "uint8") for point in range(model.last)}
    budget = AccuracyBudget(max_error=1e-9)
    with running(model, terms=terms("random", accuracy=budget)) as server:
        for name in ("a", "b"):
            options: dict[str, Any] = {"state": tmp_path / name, "name": name, "seed": 3}
            with Device(server.address, file, "test", **options) as device:
                for _ in range(40 * model.last):
                    device.infer({first.name: image})
                    time.sleep(0.01)
                    if device._requests.accuracy.out == everything:
                        break
                assert device._requests.accuracy.out == everything
        with Device(server.address, file, "test", state=tmp_path / "c", name="c") as device:
            device.infer({first.name: image})
            assert device._requests.accuracy.out == everything
            assert device.last is not None
            assert device.last.point == model.last
            assert "out for their accuracy" in device.last.why


def test_one_device_alone_does_not_speak_for_the_fleet(model: SplitModel) -> None:
    fleet = FleetAccuracy()
    for name in ("liar", "a", "b"):
        fleet.joined(name, model)
    fleet.told("liar", [Compared(0, 10_000, 1e9, 10_000, 0.0)])
    assert fleet.known(model)[0].worst_error == 0.0
    fleet.told("a", [Compared(0, 50, 0.01, 50, 50.0)])
    fleet.told("b", [Compared(0, 50, 0.02, 40, 40.0), Compared(3, 1, 0.5, 1, 1.0)])
    fleet.told("stranger", [Compared(0, 50, 9.0, 50, 50.0)])
    assert [each.row for each in fleet.known(model)] == [0, 3]
    known = fleet.known(model)[0]
    assert (known.worst_error, known.judged, known.agreed) == (0.02, 190, 90.0)


@pytest.mark.parametrize(
    "wrong", [{"row": 5000}, {"count": 1, "judged": 2}, {"worst_error": float("nan")},
              {"count": 2, "judged": 2, "agreed": 3.0}, {"agreed": float("inf")}],
)  # fmt: skip
def test_comparisons_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    sent = Account(1, compared=(replace(Compared(0), **wrong),))
    with pytest.raises(RemoteProtocolError, match="comparison"):
        account_in(account_out(sent))
    fine = Account(1, compared=(Compared(3, 2, 0.5, 1, 1.0),))
    assert account_in(account_out(fine)) == fine
