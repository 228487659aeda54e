"""Nothing that is no latency is ever learned, whoever says it: a clock, a server, a stopwatch."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cans.learning import Choice, Latencies
from cans.learning.plausibility import Limits
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.timing import Measured, Offline, believable, parted
from cans.live.server.backends import BackEnds
from tests.live.running import running, terms
from tests.live.toy import example, toy

ANYTHING = Limits(lowest_ms=-inf, highest_ms=inf)


def test_only_numbers_within_the_limits_are_believable() -> None:
    for nonsense in (None, nan, inf, -inf):
        assert not believable(nonsense, Limits())
        assert not believable(nonsense, ANYTHING)
    assert believable(5.0, Limits())
    assert not believable(-5.0, Limits())
    assert believable(-5.0, ANYTHING)


def test_a_round_trip_is_parted_only_by_a_time_that_fits_into_it() -> None:
    assert parted(10.0, 3.0, 1.0) == (6.0, 4.0)
    for nonsense in (10.1, -1.0, nan, inf, -inf):
        assert parted(10.0, nonsense, 2.0) == (None, None)
        assert parted(10.0, 2.0, nonsense) == (None, None)


def sums_are_sane(device: Device) -> bool:
    """Every number the device has learned and would estimate with."""
    learner = device._experience.learner
    assert learner is not None
    found = [np.concatenate([each.sigma.ravel(), each.b, [each.squares, each.weight]])
             for record in learner.records() for each in (record.local, record.synced)]  # fmt: skip
    return all(np.isfinite(each).all() for each in (*found, *learner.predictions()))


@pytest.mark.parametrize("claimed", [nan, inf, -inf, -5.0, 1e9])
@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw", "linucb"])
def test_a_server_that_misreports_its_time(
    policy: str, claimed: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers are used, its times are not; also where no limits are set."""
    honest = BackEnds.run

    async def misreporting(*words: Any) -> Any:
        return replace(await honest(*words), compute_ms=claimed)

    monkeypatch.setattr(BackEnds, "run", misreporting)
    with (
        running(toy(), terms=terms(policy, limits=ANYTHING)) as server,
        Device(server.address, toy(), state=tmp_path, seed=1) as device,
    ):
        device.hooks.force = 1
        for seed in range(4):
            outputs = device.infer(example(seed=seed))
            np.testing.assert_allclose(outputs["y"], example(seed=seed)["t0"] + 4, rtol=1e-6)
        device.settle()
        assert device.last is not None
        assert device.last.answered_by == server.address
        assert device.last.to_dict()["server_ms"] is None
        learner = device._experience.learner
        assert learner is not None
        told = {r.key.part: r.local.count + r.synced.count for r in learner.records()}
        assert not any(told[part] for part in ("link", "server", "back", "joint") if part in told)
        assert sums_are_sane(device)


class Broken:
    """A stopwatch that has lost its senses."""

    def __init__(self) -> None:
        self.says = [nan, inf, -inf]

    def latencies(self, choice: Choice, measured: Measured) -> Latencies:
        self.says = self.says[1:] + self.says[:1]
        return Latencies(*self.says)

    def offline(self, measured: Offline) -> Offline:
        return [(choice, each) for (choice, _), each in zip(measured, self.says, strict=False)]


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw"])
@pytest.mark.parametrize("limits", [Limits(), ANYTHING])
def test_a_stopwatch_that_hands_out_nonsense(policy: str, limits: Limits, tmp_path: Path) -> None:
    with (
        running(toy(), terms=terms(policy, limits=limits)) as server,
        Device(
            server.address, toy(), state=tmp_path, seed=1, hooks=Hooks(stopwatch=Broken())
        ) as device,
    ):
        for seed in range(6):
            device.infer(example(seed=seed))
        device._experience.observe_probe([nan], device._clock.now())
        device.settle()
        assert device._experience.state.inferences == 6
        assert device._experience.state.observations == 0
        assert sums_are_sane(device)
        assert sum(account.total for account in server.store().accounts()) == 0
