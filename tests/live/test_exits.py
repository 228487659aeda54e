"""Early exits, on real networks: a local run ends at the first one that is sure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.local import confidence
from cans.live.split import Arrays, Cutting, SplitModel
from cans.live.splitting import load_model, split
from tests.live.ledger import Ledger
from tests.live.onnx_models import convolutions
from tests.live.running import running, terms

Thresholds = Callable[[float, float], tuple[float, float]]
CASES: dict[str, Thresholds] = {
    "": lambda first, second: (up(first), up(second)),
    "first": lambda first, second: (down(first), up(second)),
    "second": lambda first, second: (up(first), down(second)),
    "both": lambda first, second: (down(first), down(second)),
}


def up(confidence: float) -> float:
    return min(confidence * 1.001, 1.0)


def down(confidence: float) -> float:
    return confidence * 0.999


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convolutions(tmp_path_factory.mktemp("model") / "exits.onnx", layers=6, exits=(1, 3))


def cut(path: Path | str) -> SplitModel:
    return split(load_model(path, Cutting()), Cutting())


def image(size: int = 16) -> dict[str, np.ndarray]:
    value = np.random.default_rng(5).standard_normal((1, 3, size, size)).astype(np.float32)
    return {"input": value}


def exit_points(model: SplitModel, *names: str) -> list[int]:
    found = enumerate(model.points)
    points = [(index, point.outputs) for index, point in found]
    return [next(index for index, outputs in points if name in outputs) for name in names]


def watched(device: Device) -> list[str]:
    """The blocks that a device runs from now on."""
    seen: list[str] = []
    executor, before = device.model.executor, device.model.executor.on_block
    assert before is not None

    def hook(name: str, thread_seconds: float, wall_seconds: float) -> None:
        seen.append(name)
        before(name, thread_seconds, wall_seconds)

    executor.on_block = hook
    return seen


@pytest.mark.parametrize("leaves", CASES)
def test_a_local_run_ends_at_the_first_sure_exit(path: Path, tmp_path: Path, leaves: str) -> None:
    model = cut(path)
    whole = model.executor.run_front(model.last, image()).outputs
    thresholds = CASES[leaves](confidence(whole["exit1"]), confidence(whole["exit3"]))
    first, second = exit_points(model, "exit1", "exit3")
    assert 0 < first < second < model.last
    exits = tuple(zip(("exit1", "exit3"), thresholds, strict=True))
    wanted: tuple[int, set[str]] = {
        "": (model.last, {"exit1", "exit3", "scores"}),
        "first": (first, {"exit1"}),
        "second": (second, {"exit1", "exit3"}),
        "both": (first, {"exit1"}),
    }[leaves]
    book = Ledger()
    with running(cut(path), terms=terms("local")) as server, Device(
        server.address, model, state=tmp_path, exit=exits, hooks=Hooks(stopwatch=book)
    ) as device:  # fmt: skip
        for _ in range(3):  # until every stretch is settled
            seen = watched(device)
            outputs = device.infer(image())
            device.settle()
        assert device.last is not None
        assert (device.last.point, set(outputs)) == wanted
        for name, value in outputs.items():
            np.testing.assert_allclose(value, whole[name], atol=1e-5)
        assert seen == [point.name for point in model.points[1 : wanted[0] + 1]]  # none twice
        left = {"first": "exit1", "second": "exit3", "both": "exit1"}.get(leaves)
        assert ("left at exit" in device.last.why) is (left is not None)
        assert left is None or device.last.why.endswith(left)
        assert device.last.learned
        row = model.table.point_of.index(wanted[0])
        chosen, learned = book.rounds[-1]
        assert chosen == row
        assert learned.front is not None
        assert learned.front == pytest.approx(device.last.front_ms)
        assert (learned.link, learned.server) == ((0.0, 0.0) if left is None else (None, None))


def test_such_a_run_is_front_end_experience(path: Path, tmp_path: Path) -> None:
    """Wherever it ended, the front part has learned one more observation, the others none."""
    model = cut(path)
    whole = model.executor.run_front(model.last, image()).outputs
    second = (up(confidence(whole["exit1"])), down(confidence(whole["exit3"])))
    exits = tuple(zip(("exit1", "exit3"), second, strict=True))
    with running(cut(path), terms=terms("fedlinucb-decouple")) as server, Device(
        server.address, model, state=tmp_path, exit=exits
    ) as device:  # fmt: skip
        device.hooks.force = model.table.local
        for _ in range(8):
            device.infer(image())
        device.settle()
    counts = {each.key.part: 0 for each in device._experience.state.records}
    for record in device._experience.state.records:
        counts[record.key.part] += record.local.count
    for account in server.store().accounts():
        counts[account.key.part] += account.pool.statistics.count
    assert counts == {"front": 6, "back": 0}  # 8 runs, the first two not settled


def test_what_the_server_does_not_answer_may_end_at_an_exit(path: Path, tmp_path: Path) -> None:
    model = cut(path)
    whole = model.executor.run_front(model.last, image()).outputs
    c1, c3 = confidence(whole["exit1"]), confidence(whole["exit3"])
    first, second = exit_points(model, "exit1", "exit3")
    for thresholds, at, names, ran in (
        ((up(c1), down(c3)), first, {"exit1", "exit3"}, model.points[1 : second + 1]),
        ((down(c1), up(c3)), first + 1, {"exit1"}, model.points[1 : first + 2]),
        ((up(c1), up(c3)), first, {"exit1", "exit3", "scores"}, model.points[1:]),
    ):
        exits = tuple(zip(("exit1", "exit3"), thresholds, strict=True))
        with running(cut(path), terms=terms("offload")) as server, Device(
            server.address, model, state=tmp_path, exit=exits
        ) as device:  # fmt: skip
            device.hooks.force = model.table.point_of.index(at)
            device.hooks.hedge = False
            assert set(device.infer(image())) == {"exit1", "exit3", "scores"}
            server.stop()
            seen = watched(device)
            outputs = device.infer(image())
            assert device.last is not None
            assert device.last.fallback
            assert set(outputs) == names
            for name, value in outputs.items():
                np.testing.assert_allclose(value, whole[name], atol=1e-5)
            assert seen == [point.name for point in ran]


def test_vgg16_with_two_exits(tmp_path: Path) -> None:
    model = cut("vgg16-exits")
    inputs: Arrays = image(224)
    whole = model.executor.run_front(model.last, inputs).outputs
    c3, c4 = confidence(whole["exit3"]), confidence(whole["exit4"])
    points = dict(zip(("exit3", "exit4"), exit_points(model, "exit3", "exit4"), strict=True))
    assert {model.points[each].name for each in points.values()} == {"pool3", "pool4"}
    for leaves, thresholds in (
        ("exit3", (down(c3), down(c4))),
        ("exit4", (up(c3), down(c4))),
        ("", (up(c3), up(c4))),
    ):
        exits = tuple(zip(("exit3", "exit4"), thresholds, strict=True))
        with Device(
            "127.0.0.1:1", model, state=tmp_path, exit=exits, connect_seconds=0.1
        ) as device:
            outputs = device.infer(inputs)
            assert device.last is not None
            assert device.last.point == points.get(leaves, model.last)
            for name, value in outputs.items():
                np.testing.assert_allclose(value, whole[name], atol=1e-5)
