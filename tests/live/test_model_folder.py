"""A folder of models is served as it is, and as it changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cans.errors import InputError, ModelError, Refused
from cans.live.device.device import Device
from cans.live.server import model_folder
from cans.live.server.catalogue import Catalogue
from cans.live.server.model_folder import ModelFolder
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from tests.live.onnx_models import convolutions
from tests.live.running import Running, terms
from tests.live.toy import toy


def real(path: Path) -> SplitModel:
    return split(load_model(path, Cutting()), Cutting(), to_send=True)


def fake(path: Path) -> SplitModel:
    """A model whose digest is what the file says."""
    text = path.read_text()
    if text == "bad":
        raise ModelError("not a model")
    model = toy()
    return replace(model, name=path.stem, digest=text, table=replace(model.table, digest=text))


def test_files_that_come_change_and_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.onnx").write_text("first")
    folder = ModelFolder(tmp_path, fake)
    catalogue = Catalogue(folder.first(), terms())

    def look(times: int = 2) -> list[str]:
        for _ in range(times):
            asyncio.run(folder.step(catalogue))
        return [each.digest for each in catalogue.models]

    assert look() == ["first"]
    (tmp_path / "b.onnx").write_text("other")
    assert look(1) == ["first"]  # it may still be being copied
    assert look(1) == ["first", "other"]
    (tmp_path / "a.onnx").write_text("second, longer")
    assert look() == ["other", "second, longer"]
    with pytest.raises(Refused, match="no model 'first'"):
        catalogue.find("first")
    (tmp_path / "b.onnx").write_text("bad")
    assert look(6) == ["other", "second, longer"]
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [each.getMessage() for each in errors] == ["model cannot be served"]
    (tmp_path / "b.onnx").unlink()
    assert look(1) == ["second, longer"]


def test_a_folder_must_have_a_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no \.onnx file"):
        ModelFolder(tmp_path, fake).first()
    with pytest.raises(InputError, match="is no folder"):
        ModelFolder(tmp_path / "none", fake)


def test_a_device_finds_a_model_that_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folder, "LOOK_SECONDS", 0.1)
    models = tmp_path / "models"
    models.mkdir()
    convolutions(models / "small.onnx", layers=2)
    server = Running.of(folder=ModelFolder(models, real), terms=terms("offload"))
    try:
        convolutions(tmp_path / "later.onnx", layers=3).rename(models / "later.onnx")
        wait_until(lambda: len(server.server.catalogue.models) == 2)
        with Device(
            server.address, models / "later.onnx", "rpi5", state=tmp_path / "device"
        ) as device:
            assert device.joined
            assert device.model.name == "later"
    finally:
        server.stop()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
