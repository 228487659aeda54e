"""A codec is one class: registered, it can be verified, planned with, offered and sent."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx_networks import node, save, weight
from tests.live.running import running
from typer.testing import CliRunner

from cans.cli import app
from cans.learning.constraints import Constraints
from cans.live.device.device import Device
from cans.live.split import Cutting
from cans.live.splitting import load_model, split
from cans.models.codecs import codec as registry
from cans.models.codecs.codec import FloatCodec, all_codecs, exactly, register


@pytest.fixture
def brain_float(monkeypatch: pytest.MonkeyPatch) -> str:
    """The upper half of each float32, as one class and nothing else."""
    monkeypatch.setattr(registry, "_registered", dict(all_codecs()))

    @register
    class BrainFloat(FloatCodec):
        name = "bfloat16"
        kind = 77

        def write(self, array: NDArray[Any]) -> bytes | None:
            return (np.ascontiguousarray(array, "<f4").view("<u4") >> 16).astype("<u2").tobytes()

        def read(
            self, body: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]
        ) -> NDArray[Any]:
            upper = exactly(body, np.dtype("<u2"), prod(shape)).astype("<u4") << 16
            return upper.view("<f4").reshape(shape).astype(dtype)

        def body_size(self, shape: tuple[int, ...]) -> int:
            return 2 * prod(shape)

    return BrainFloat.name


@pytest.fixture
def network(tmp_path: Path) -> Path:
    nodes = [node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node("Relu", ["a"], "b")]
    nodes += [node("Conv", ["b", "w"], "out", pads=[1, 1, 1, 1])]
    return save(tmp_path / "m.onnx", nodes, {"x": [1, 4, 8, 8]}, ["out"], [weight("w", 4, 4, 3, 3)])


def test_it_is_verified_like_the_others(brain_float: str, network: Path) -> None:
    arguments = ["verify", str(network), "--codec", brain_float, "--json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    report = json.loads(done.stdout)
    assert report["points"][0]["encoded_bytes"] == 4 + 2 * 256
    assert 0 < report["worst_error"] < 0.02


def test_a_server_offers_it_and_an_answer_crosses(
    brain_float: str, network: Path, tmp_path: Path
) -> None:
    cutting = Cutting()
    codecs = ["float32", brain_float]
    model = split(load_model(network, cutting), cutting, codecs=codecs)
    assert model.table.codec_of[:2] == ("float32", brain_float)
    image = {"x": np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype("f4")}
    whole = model.executor.run_front(model.last, image).outputs["out"]
    only = Constraints(allow_codec=frozenset([brain_float]))
    options: dict[str, Any] = {"local": False, "constraints": only, "state": tmp_path / "state"}
    with running(model) as server, Device(server.address, network, **options) as device:
        outputs = device.infer(image)
    assert 0 < np.abs(outputs["out"] - whole).max() < 0.05


def test_two_codecs_cannot_share_a_kind(brain_float: str) -> None:
    class Impostor(FloatCodec):
        name = "other"
        kind = 77

        def write(self, array: NDArray[Any]) -> bytes | None:
            return None

        def read(self, body: memoryview, shape: Any, dtype: Any) -> NDArray[Any]:
            raise ValueError

        def body_size(self, shape: tuple[int, ...]) -> int:
            return 0

    with pytest.raises(ValueError, match="clash"):
        register(Impostor)
