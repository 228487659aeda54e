"""Sizes that vary, with real models and real times: a text recogniser on crops of 40 widths (from
the wheel `rapidocr-onnxruntime`) and a BERT on texts of 60 lengths.

Bars: split equals whole at every size; after 100 inferences, each of a random size, the choices of
policy `cans` cost at most 5 % more than the best fixed choice of each size. Both halves are
measured here, at every size and point, and played back: the device is so many times slower than
this machine, the link has so many megabits per second.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bert import WORDS, bert
from cans.learning import Hyperparameters, policy_named
from cans.models import Executor, Model, Point, SizedTable, find_points, load
from cans.models.tools.comparing import error
from cans.models.tools.evidence import run_original
from cans.simulation.engines import reference
from cans.simulation.worlds.world import World

BAR, TOLERANCE = 1.05, 1e-5
FIRST, ROUNDS, SEEDS = 100, 400, 5  # inferences that are not judged, all of them, and runs
POINTS = 8
TIMES, KEPT = 4, 2  # runs of each half, and how many of them count: the fastest
SCENES = {
    "slow device, 20 Mbit/s": (8.0, 20.0),
    "device, 100 Mbit/s": (3.0, 100.0),
    "quick device, 10 Mbit/s": (1.5, 10.0),
}
ROUND_TRIP_MS = 4.0

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """Milliseconds of both halves at every size and point, and the learner's rows then."""

    sized: SizedTable
    inputs: Sequence[Arrays]
    front_ms: Any  # (sizes, points, samples)
    back_ms: Any
    bytes_of: Any  # (sizes, points)
    worst_error: float


def recogniser() -> tuple[Model, list[Arrays]]:
    found = find_spec("rapidocr_onnxruntime")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(found.submodule_search_locations[0]) / "models"
    model = load(
        folder / "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}, lowest={"x": (1, 3, 48, 32)}
    )
    random = np.random.default_rng(0)
    widths = np.linspace(32, 320, 40).astype(int)
    return model, [{"x": random.random((1, 3, 48, w), np.float32)} for w in widths]


def texts(folder: Path) -> tuple[Model, list[Arrays]]:
    shape, lowest = (1, 256), (1, 8)
    path = bert(folder / "bert.onnx")
    model = load(path, dict.fromkeys(("ids", "mask"), shape),
                 lowest=dict.fromkeys(("ids", "mask"), lowest))  # fmt: skip
    random = np.random.default_rng(0)
    return model, [
        {"ids": random.integers(0, WORDS, (1, n)), "mask": np.ones((1, n), np.int64)}
        for n in np.linspace(8, 256, 60).astype(int)
    ]


def measured(model: Model, inputs: list[Arrays]) -> Measured:
    """Run every half at every size."""
    points = find_points(model, max_points=POINTS)
    executor = Executor(model, points)
    executor.build()
    for point in points:
        executor.prepare(point.index, calibrate=False)
    sizes, last = len(inputs), len(points) - 1
    front, back = (np.zeros((sizes, len(points), TIMES)) for _ in range(2))
    sent = np.zeros((sizes, len(points)))
    wholes = [run_original(model, dict(values)) for values in inputs]
    worst = 0.0
    for turn in range(TIMES):
        for size, values in enumerate(inputs):
            for index in range(len(points)):
                head = executor.run_front(index, values)
                front[size, index, turn] = head.seconds * 1e3
                outputs = dict(head.outputs)
                if index < last:
                    tail = executor.run_back(index, head.crossing)
                    back[size, index, turn] = tail.seconds * 1e3
                    outputs |= tail.outputs
                    sent[size, index] = sum(each.nbytes for each in head.crossing.values())
                if turn == 0:
                    worst = max(worst, error(outputs, wholes[size]))
    kept = [np.sort(each, axis=2)[..., :KEPT] for each in (front, back)]
    return Measured(_table(model, points), inputs, kept[0], kept[1], sent, worst)


def _table(model: Model, points: Sequence[Point]) -> SizedTable:
    return SizedTable(model, points, probe_bytes=(8 << 10, 64 << 10))


def world(found: Measured, slower: float, mbps: float) -> World:
    """One device on one link, at every size."""
    link = found.bytes_of * 8e-3 / mbps
    link[found.bytes_of > 0] += ROUND_TRIP_MS
    worlds = []
    for size, values in enumerate(found.inputs):
        one = [found.front_ms[size] * slower, np.repeat(link[size][:, None], KEPT, 1),
               found.back_ms[size]]  # fmt: skip
        samples = np.stack(one, axis=-1)[None]
        expected = samples.mean(axis=2)
        worlds.append(
            World(
                name="sizes",
                table=found.sized.at(values),
                types=("device",),
                networks=("link",),
                type_of=np.zeros(1, int),
                network_of=np.zeros(1, int),
                place_of=np.zeros(1, int),
                front_ms=expected[..., 0],
                link_ms=expected[..., 1],
                link_fixed_ms=np.zeros(samples.shape[1]),
                server_ms=expected[..., 2],
                probe_ms=np.array([[65.536 / mbps, ROUND_TRIP_MS]]),
                allowed=np.ones(samples.shape[:2], bool),
                samples=samples,
                sample_count=np.full(samples.shape[:2], KEPT),
            )
        )
    largest = replace(worlds[-1], table=found.sized.largest)
    return replace(largest, sizes=tuple(worlds))


def best_choices(scene: World) -> int:
    """How many choices are the best one of some size."""
    return len({int((w.front_ms + w.link_ms + w.server_ms).argmin()) for w in scene.sizes})


def above_best(scene: World) -> float:
    """Expected latency after the first inferences over that of the best choice of each size."""
    policy, numbers = policy_named("cans"), Hyperparameters()
    chosen = best = 0.0
    for seed in range(SEEDS):
        episode = scene.episode(ROUNDS, seed, numbers.offline_runs, 0, policy.offline_whole)
        record = reference.play(scene, policy, numbers, episode)
        chosen += record.expected_ms[FIRST:].sum()
        best += (record.expected_ms - record.regret_ms)[FIRST:].sum()
    return float(chosen / best)


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        models: dict[str, Callable[[], tuple[Model, list[Arrays]]]] = {
            "recogniser, 40 widths": recogniser,
            "BERT, 60 lengths": lambda: texts(Path(folder)),
        }
        found = {name: measured(*make()) for name, make in models.items()}
    worlds = {
        f"{name}; {scene}": world(each, *numbers)
        for name, each in found.items()
        for scene, numbers in SCENES.items()
    }
    ratios = {name: above_best(each) for name, each in worlds.items()}
    return {
        "worst_split_error": {name: each.worst_error for name, each in found.items()},
        "choices_that_are_best_at_some_size": {n: best_choices(w) for n, w in worlds.items()},
        "over_best_per_size": ratios,
        "bars_met": {
            "split": all(each.worst_error <= TOLERANCE for each in found.values()),
            "within_5_percent": all(each <= BAR for each in ratios.values()),
        },
    }
