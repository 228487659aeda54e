"""A device that stays local: its runs wait for nobody, and all of them are accounted for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import cans
from cans.learning.constraints import Constraints
from cans.live.device.agent import Agent
from cans.live.device.staying import Staying
from live.running import Running, running, terms
from program.networks import classifier, picture, served

HERE_ONLY = Constraints(min_local_depth=10**6)
RUNS = 120


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return classifier(tmp_path / "classifier.onnx")


@pytest.fixture
def server(model: Path) -> Iterator[Running]:
    with running(served(model), terms=terms("cans")) as found:
        yield found


@pytest.fixture
def device(model: Path, server: Running, tmp_path: Path) -> Iterator[cans.Device]:
    options = {"constraints": HERE_ONLY, "state": tmp_path / "state"}
    with cans.Device(server.address, model, "rpi5", prepare=True, **options) as found:
        yield found


def stays(device: cans.Device, runs: int = RUNS) -> None:
    for _ in range(runs):
        device.infer({"x": picture(0)})


def of(device: cans.Device) -> Staying:
    assert device._agent is not None
    return device._agent._staying


def test_runs_without_a_turn_are_counted_and_learned_from(device: cans.Device) -> None:
    turns = 0
    begin = device._requests.begin

    def counted(*arguments):
        nonlocal turns
        turns += 1
        return begin(*arguments)

    device._requests.begin = counted
    stays(device)
    last = device.last
    assert last is not None
    assert last.answered_by == "device"
    assert last.number == RUNS
    assert turns < RUNS / 2
    device.settle()
    assert not of(device).unlearned
    state = device._experience.state
    assert state.inferences == RUNS
    assert turns / 2 < state.observations <= RUNS


def test_every_report_can_be_had(device: cans.Device) -> None:
    stays(device)
    results = [device.run({"x": picture(seed)}) for seed in range(40)]
    for result in results:
        assert result.report.answered_by == "device"
        assert result.report.total_ms > 0
        assert result.report.point == device.model.last


def test_a_report_counts_from_the_call_and_the_run_alone_is_learned(device: cans.Device) -> None:
    stays(device)
    found, running = of(device), device._running_agent

    def slow() -> Agent:
        time.sleep(0.1)
        return running()

    device._running_agent = slow
    while True:  # the agent may look just now, and then there is no permit
        device.infer({"x": picture(0)})
        if found.unlearned:
            break
    stayed = found._unlearned[-1]
    device._running_agent = running
    last = device.last
    assert last is not None
    assert last.total_ms >= 100.0
    assert stayed.end - stayed.begun < 0.1


def test_answers_are_the_models_from_many_threads(model: Path, device: cans.Device) -> None:
    whole = ort.InferenceSession(model)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda s: device.infer({"x": picture(s)}), range(RUNS)))
    for seed, answer in enumerate(answers):
        expected = whole.run(["scores"], {"x": picture(seed)})[0]
        np.testing.assert_allclose(answer["scores"], expected, rtol=1e-5, atol=1e-5)
    device.settle()
    assert device._experience.state.inferences == RUNS


def test_wrong_inputs_are_refused_as_ever(device: cans.Device) -> None:
    stays(device)
    for wrong in ({"y": picture(0)}, {"x": picture(0)[0]}, {"x": picture(0).astype("float64")}):
        with pytest.raises(cans.InputError):
            device.infer(wrong)


def test_what_was_run_last_is_kept_when_it_closes(model, server, tmp_path) -> None:
    state = tmp_path / "state"
    for _ in range(2):
        with cans.Device(server.address, model, constraints=HERE_ONLY, state=state) as device:
            stays(device)
    with cans.Device(server.address, model, constraints=HERE_ONLY, state=state) as device:
        assert device._experience.state.inferences == 2 * RUNS


def test_a_device_that_may_send_again_does(device: cans.Device) -> None:
    """Permits end with the next look: whoever chooses then is heard."""
    stays(device)
    chooser, server = device._requests._chooser, device._contact.links[0].server
    allowed = chooser._allowed

    def only_the_raw_input(*arguments):
        found = allowed(*arguments)
        found[:] = False
        found[0] = True
        return found

    chooser._allowed = only_the_raw_input
    for _ in range(1000):
        device.infer({"x": picture(0)})
        last = device.last
        assert last is not None
        if last.answered_by == server:
            return
    pytest.fail("it never asked its server again")
