"""Servers that lie: what protects the user never depends on a server's word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cans
from cans.errors import RemoteProtocolError
from cans.learning import Download, Hyperparameters
from cans.live.device.device import Device
from cans.live.wire.learned import download_in, download_out
from cans.live.wire.messages import LARGEST_WELCOME, Welcome
from cans.live.wire.proto import edge
from cans.live.wire.terms import terms_in, terms_out
from tests.live.running import running, terms
from tests.live.toy import ToyExecutor, ToyRun, example, toy
from tests.live.values import KEY, statistics


def test_a_table_that_says_nothing_is_sent_does_not_lift_the_limit(tmp_path: Path) -> None:
    """The server's table claims 0 bytes for every choice; the device counts for itself."""
    model = toy()
    lying = replace(model, table=replace(model.table, bytes_of=(0,) * model.table.choices))
    with running(lying, terms=terms("offload")) as server, Device(
        server.address, toy(), state=tmp_path, constraints=cans.Constraints(max_bytes=100)
    ) as device:  # fmt: skip
        result = device.run(example())
        assert result.report.answered_by == "device"
        assert result.report.bytes_up == 0
        assert ("Infer", "OK") not in server.server.gate.calls


def test_deeply_nested_hyperparameters_are_a_clear_error() -> None:
    message = edge.Welcome(hyperparameters="[" * 200_000)
    with pytest.raises(RemoteProtocolError):
        terms_in(message)
    with pytest.raises(RemoteProtocolError):
        Welcome.from_bytes(message.SerializeToString())


@pytest.mark.parametrize(
    "wrong", [np.zeros((1, 3), np.float32), np.zeros((1, 64), np.float64), np.zeros(64, np.float32)]
)
def test_outputs_of_another_shape_or_type_never_reach_the_caller(
    tmp_path: Path, wrong: np.ndarray[Any, Any]
) -> None:
    lying = toy()
    assert isinstance(lying.executor, ToyExecutor)
    lying.executor.run_back = lambda *_: ToyRun({"y": wrong})  # type: ignore[method-assign]
    with running(lying, terms=terms("offload")) as server, Device(
        server.address, toy(), state=tmp_path
    ) as device:  # fmt: skip
        result = device.run(example())
        np.testing.assert_allclose(result.outputs["y"], example()["t0"] + 4, rtol=1e-6)
        assert result.report.answered_by == "device"
        assert "which is float32[1, 64]" in result.report.fallback


def test_versions_and_runs_beyond_all_reason_are_refused() -> None:
    download = Download(KEY, 3, statistics(1), 5)
    assert download_in(download_out(download)).epoch == 3
    for absurd in (replace(download, epoch=10**9), replace(download, round=2**60)):
        with pytest.raises(RemoteProtocolError, match="beyond"):
            download_in(download_out(absurd))
    message = edge.Welcome()
    terms_out(terms("cans", hyperparameters=Hyperparameters(offline_runs=10**9)), message)
    with pytest.raises(RemoteProtocolError, match="before the first round"):
        terms_in(message)
    with pytest.raises(RemoteProtocolError, match="a welcome of"):
        Welcome.from_bytes(bytes(LARGEST_WELCOME + 1))


def test_a_large_welcome_is_written_when_it_changes_only(tmp_path: Path) -> None:
    model = toy(layers=400)
    with running(model, terms=terms("cans")) as server, Device(
        server.address, toy(layers=400), state=tmp_path
    ) as device:  # fmt: skip
        device.infer(example())
        device.settle()
        before = (tmp_path / "welcome").stat()
        assert before.st_size > 10_000
        for _ in range(5):
            device.infer(example())
        device.settle()
        assert (tmp_path / "welcome").stat().st_mtime_ns == before.st_mtime_ns
        assert (tmp_path / "state").stat().st_size < before.st_size / 2
    with Device("127.0.0.1:1", toy(layers=400), state=tmp_path, connect_seconds=0.1) as device:
        assert device._experience.terms is not None  # those of last time


@pytest.mark.parametrize("floor", ["p2", "t2"])
def test_the_privacy_floor_goes_by_names_of_the_own_model(tmp_path: Path, floor: str) -> None:
    """A server whose table has its rows shifted gets nothing from before the floor."""
    model = toy()
    shifted = replace(model.table, point_of=(3, 0, 1, 2, 4))
    with running(replace(model, table=shifted), terms=terms("random")) as server, Device(
        server.address, toy(), state=tmp_path, constraints=cans.Constraints(local_until=floor)
    ) as device:  # fmt: skip
        assert device.joined
        points = {device.run(example()).report.point for _ in range(30)}
        assert points <= {2, 3, 4}
        assert points & {2, 3}


def test_a_table_of_other_points_is_not_followed(tmp_path: Path) -> None:
    model = toy()
    names = (model.table.points[1], model.table.points[0], *model.table.points[2:])
    lying = replace(model, table=replace(model.table, points=names))
    floor = cans.Constraints(local_until="p1")
    with running(lying, terms=terms("offload")) as server:
        with pytest.raises(cans.Refused, match="other points"):
            Device(server.address, toy(), state=tmp_path, constraints=floor)
        assert ("Infer", "OK") not in server.server.gate.calls


def test_a_floor_that_is_nowhere_is_an_error(tmp_path: Path) -> None:
    floor = cans.Constraints(local_until="p9")
    with pytest.raises(cans.InputError, match="p9"):
        Device("127.0.0.1:1", toy(), state=tmp_path, connect_seconds=0.1, constraints=floor)
