"""A device that was slow for a while finds out that it is well again."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.own_run import OwnRun
from cans.live.device.round import Job
from tests.live.faults import wait_until
from tests.live.running import running, terms
from tests.live.toy import example, toy

QUICK, SLOW = 0.004, 0.1  # seconds of each of four blocks; the server's take 0.02


def own_run_of(device: Device) -> OwnRun:
    agent = device._agent
    assert agent is not None
    return agent._own_run


def look_soon(device: Device, seconds: float) -> None:
    """Whatever is idle is looked at after so long, not after ten seconds."""
    learner = device._experience.learner
    assert learner is not None
    learner.trials._policy = replace(learner.policy, probe_after_s=seconds)


def places(device: Device, times: int) -> list[str]:
    answered = []
    for _ in range(times):
        result = device.run(example())
        np.testing.assert_allclose(result.outputs["y"], example()["t0"] + 4, rtol=1e-6)
        answered.append(result.report.answered_by)
    device.settle()
    return answered


def test_a_device_that_was_slow_for_a_while_comes_back(tmp_path: Path) -> None:
    served, model = toy(block_seconds=0.02), toy(block_seconds=QUICK)
    with (
        running(served, terms=terms("cans"), workers=1) as server,
        Device(server.address, model, state=tmp_path, hooks=Hooks(hedge=False)) as device,
    ):
        look_soon(device, 0.2)
        assert set(places(device, 30)[-5:]) == {"device"}

        model.executor.block_seconds = SLOW  # another program runs
        wait_until(lambda: "device" not in places(device, 5), 60.0)
        made, before = own_run_of(device).made, device._experience.state
        wait_until(lambda: bool(places(device, 1)) and own_run_of(device).made > made, 30.0)
        after = device._experience.state
        asked = after.inferences - before.inferences
        assert after.observations > before.observations + asked, "it was no inference of the user's"
        assert "device" not in places(device, 3), "it is still slow"

        model.executor.block_seconds = QUICK  # and has ended
        wait_until(lambda: set(places(device, 5)) == {"device"}, 60.0)


def test_only_a_front_end_that_is_idle_is_run_for_its_own_sake(tmp_path: Path) -> None:
    model = toy()
    with (
        running(model, terms=terms("cans")) as server,
        Device(server.address, model, state=tmp_path) as device,
    ):
        places(device, 3)
        learner, own_run = device._experience.learner, own_run_of(device)
        assert learner is not None
        raw, late, local = 0, 3, learner.table.local
        assert not own_run.wanted(raw), "it has just begun"
        now = device._clock.now()
        front = learner._parts["front"].number
        learner._state.physics.ran[0] = now - 50.0
        assert own_run.wanted(raw), "little is known"
        learner._state.synced[0, front, -2] = 100.0
        assert not own_run.wanted(raw), "it is known, and never changed"
        learner._state.epoch[0, front] = 1
        assert own_run.wanted(raw)
        learner._state.epoch[0, front] = 0
        learner._state.physics.ran[0] = now - 150.0
        assert own_run.wanted(raw), "it may have become faster"
        assert not own_run.wanted(late), "its own requests say it"
        assert not own_run.wanted(local)
        for name, value in (("force", 0), ("learning", False)):
            usual = getattr(device.hooks, name)
            setattr(device.hooks, name, value)
            assert not own_run.wanted(raw), name
            setattr(device.hooks, name, usual)
        own_run._possible = OwnRun.is_possible(replace(device.options, own_runs=False))
        assert not own_run.wanted(raw), "its user does not want it"
        own_run._possible = True
        look_soon(device, float("inf"))
        assert not own_run.wanted(raw), "the policy never does"


def test_it_is_made_once_at_a_time_and_rests(tmp_path: Path) -> None:
    model = toy(block_seconds=0.05)
    with (
        running(model, terms=terms("cans")) as server,
        Device(server.address, model, state=tmp_path) as device,
    ):
        places(device, 1)
        learner, own_run = device._experience.learner, own_run_of(device)
        assert learner is not None
        learner.trials.wants_own_run = lambda *_: True  # type: ignore[method-assign]
        for _ in range(5):
            own_run.offer(Job(example(), time.monotonic() + 5.0), 0)
        wait_until(lambda: own_run.made == 1 and not own_run._running)
        assert not own_run.wanted(0), "at most a twentieth of the time"
        assert own_run._next > time.monotonic() + 1.0


def test_closing_does_not_wait_for_the_end_of_one(tmp_path: Path) -> None:
    model, seconds = toy(), 0.3
    with running(model, terms=terms("cans")) as server:
        with Device(server.address, model, state=tmp_path) as device:
            places(device, 1)
            learner, own_run = device._experience.learner, own_run_of(device)
            assert learner is not None
            learner.trials.wants_own_run = lambda *_: True  # type: ignore[method-assign]
            model.executor.block_seconds = seconds
            runs = model.executor.runs
            own_run.offer(Job(example(), time.monotonic() + 5.0), 0)
        time.sleep(5 * seconds)
        assert model.executor.runs == runs, "it was given up between two blocks"
