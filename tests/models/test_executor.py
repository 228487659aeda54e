"""The executor: switching, memory, threads, hooks, and what it refuses."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cans.errors import InputError, RunError
from cans.models import Executor, Model, Point, RuntimeOptions, find_points, load
from cans.models.run.inputs import random_inputs


@pytest.fixture(scope="module")
def mobilenet() -> tuple[Model, tuple[Point, ...]]:
    model = load("mobilenet_v2")
    return model, find_points(model)


@pytest.fixture(scope="module")
def image(mobilenet: tuple[Model, tuple[Point, ...]]) -> dict[str, np.ndarray]:
    return random_inputs(mobilenet[0].inputs, np.random.default_rng(0))


def test_what_is_left_of_the_raw_input_is_the_whole_model_and_no_slower(mobilenet, image) -> None:
    """A device that finishes what a server did not answer runs what it runs by itself."""
    executor, last = Executor(*mobilenet), len(mobilenet[1]) - 1
    crossing = executor.run_front(0, image).crossing
    chained = executor.continue_locally(0, crossing)
    assert chained.implementation == "chain"
    assert executor.prepare(last, ("front",), calibrate=False)
    fused = executor.continue_locally(0, crossing)
    assert (fused.implementation, len(fused.blocks)) == ("fused", 1)
    whole = executor.run_front(last, image)
    for name, value in whole.outputs.items():
        np.testing.assert_array_equal(fused.outputs[name], value)
        np.testing.assert_allclose(chained.outputs[name], value, atol=1e-4)


def test_a_switch_is_announced_and_not_taken_for_a_change_of_speed(mobilenet, image) -> None:
    executor = Executor(*mobilenet)
    chain = [executor.run_front(10, image) for _ in range(4)]
    assert [run.settled for run in chain] == [False, False, True, True]
    assert not executor.ready(10)
    assert executor.prepare(10)
    assert executor.ready(10)
    fused = [executor.run_front(10, image) for _ in range(4)]
    assert (chain[-1].implementation, fused[0].implementation) == ("chain", "fused")
    assert fused[0].generation == chain[0].generation + 1
    assert [run.settled for run in fused] == [False, False, True, True]
    assert len(chain[0].blocks) == 10
    assert len(fused[0].blocks) == 1
    # Chain runs of other points are now reported as a fused half would take.
    later = executor.run_front(12, image)
    assert later.implementation == "chain"
    assert later.steady_seconds != later.seconds
    (name,) = chain[0].crossing
    np.testing.assert_allclose(chain[0].crossing[name], fused[0].crossing[name], atol=1e-4)


def test_runs_during_a_background_build_are_not_settled(mobilenet, image) -> None:
    executor = Executor(*mobilenet)
    for _ in range(3):
        executor.run_front(8, image)
    worker = executor.prepare_in_background(8)
    seen = []
    while worker.is_alive():
        seen.append(executor.run_front(8, image))
    worker.join()
    assert executor.ready(8)
    assert all(run.implementation == "fused" or not run.settled for run in seen[:-1])


def test_the_memory_budget_is_kept(mobilenet, image) -> None:
    executor = Executor(*mobilenet, memory_budget=0)
    assert not executor.prepare(10)
    assert executor.run_front(10, image).implementation == "chain"
    small = Executor(*mobilenet, memory_budget=15_000_000)
    assert small.prepare(15)
    assert small.prepare(16)  # the pair of 15 has to go, at least in part
    assert small.ready(16)
    assert not (small.ready(15, "front") and small.ready(15, "back"))


def test_many_threads_get_the_same_answers(mobilenet, image) -> None:
    executor = Executor(*mobilenet)
    points = mobilenet[1]
    wanted = executor.run_whole(image)["logits"]

    def infer(index: int) -> np.ndarray:
        if index % 5 == 0:
            executor.prepare(index % len(points), calibrate=False)
        front = executor.run_front(index % len(points), image)
        back = executor.run_back(index % len(points), front.crossing)
        return {**front.outputs, **back.outputs}["logits"]

    with ThreadPoolExecutor(4) as pool:
        for logits in pool.map(infer, range(60)):
            np.testing.assert_allclose(logits, wanted, atol=1e-4)


def test_the_hook_sees_every_block_and_its_time_counts(mobilenet, image) -> None:
    seen: list[tuple[str, float]] = []

    def slow(name: str, thread_seconds: float, wall_seconds: float) -> None:
        seen.append((name, thread_seconds))
        time.sleep(0.01)

    executor = Executor(*mobilenet, on_block=slow)
    run = executor.run_front(5, image)
    assert [name for name, _ in seen] == [point.name for point in mobilenet[1][1:6]]
    assert run.seconds >= 0.05
    assert all(block.seconds >= 0.01 for block in run.blocks)


def test_a_failed_offload_is_finished_here(mobilenet, image) -> None:
    executor = Executor(*mobilenet)
    front = executor.run_front(7, image)
    rest = executor.continue_locally(7, front.crossing)
    np.testing.assert_allclose(
        rest.outputs["logits"], executor.run_whole(image)["logits"], atol=1e-4
    )


def test_a_device_without_a_back_end_says_so(mobilenet, image) -> None:
    executor = Executor(*mobilenet, local=False)
    executor.build()
    front = executor.run_front(7, image)
    with pytest.raises(RunError, match="no back-end"):
        executor.continue_locally(7, front.crossing)
    with pytest.raises(RunError, match="no back-end"):
        executor.run_whole(image)


def test_wrong_tensors_are_refused(mobilenet, image) -> None:
    executor = Executor(*mobilenet)
    with pytest.raises(InputError, match="missing"):
        executor.run_front(1, {})
    with pytest.raises(InputError, match=r"must be float32\[1, 3, 224, 224\]"):
        executor.run_front(1, {"input": np.zeros((1, 3, 8, 8), np.float32)})
    with pytest.raises(InputError, match="got float64"):
        executor.run_front(1, {"input": image["input"].astype(np.float64)})
    with pytest.raises(InputError, match="no point 99"):
        executor.run_front(99, image)
    with pytest.raises(InputError, match="provider"):
        RuntimeOptions.parse(["NoSuchProvider"])
    with pytest.raises(InputError, match="threads"):
        RuntimeOptions(threads=-1)


def test_several_threads_per_session_agree_with_one(mobilenet, image) -> None:
    one, two = Executor(*mobilenet), Executor(*mobilenet, RuntimeOptions(2))
    np.testing.assert_allclose(
        one.run_whole(image)["logits"], two.run_whole(image)["logits"], atol=1e-4
    )


def test_early_exits_stay_on_the_device(tmp_path: Path) -> None:
    model = load("vgg16-exits")
    points = find_points(model)
    executor = Executor(model, points)
    pool3 = next(point.index for point in points if point.name == "pool3")
    front = executor.run_front(pool3, random_inputs(model.inputs, np.random.default_rng(0)))
    assert set(front.outputs) == {"exit3"}
    assert front.outputs["exit3"].sum() == pytest.approx(1, abs=1e-4)
    assert set(executor.run_back(pool3, front.crossing).outputs) == {"exit4", "probabilities"}


def test_a_front_end_goes_on_where_it_stopped(tmp_path: Path) -> None:
    model = load("vgg16-exits")
    points = find_points(model)
    executor = Executor(model, points)
    pool3, pool4 = (i for i, point in enumerate(points) if point.name in ("pool3", "pool4"))
    inputs = random_inputs(model.inputs, np.random.default_rng(0))
    whole = executor.run_whole(inputs)
    seen: list[str] = []
    executor.on_block = lambda name, own, wall: seen.append(name)
    front = executor.run_front(pool3, inputs)
    between = executor.run_on(pool3, pool4, front.crossing)
    rest = executor.continue_locally(pool4, between.crossing)
    assert seen == [point.name for point in points[1:]]  # every block once
    assert set(between.outputs) == {"exit4"}
    for name, made in {**front.outputs, **between.outputs, **rest.outputs}.items():
        np.testing.assert_allclose(made, whole[name], atol=1e-5)
    again = [executor.run_on(pool3, pool4, front.crossing) for _ in range(2)]
    assert [between.settled, *(run.settled for run in again)] == [False, False, True]
    for wrong in ((pool4, pool3), (pool3, pool3), (pool3, len(points) - 1)):
        with pytest.raises(InputError, match="nothing to run"):
            executor.run_on(*wrong, front.crossing)


def test_what_crosses_twice_crosses_on(mobilenet) -> None:
    """With several tensors at a cut, one may cross the next cut as well, untouched in between."""
    model = mobilenet[0]
    points = find_points(model, max_tensors=2)
    executor = Executor(model, points)
    inputs = random_inputs(model.inputs, np.random.default_rng(0))
    for i in range(1, len(points) - 2):
        shared = {t.name for t in points[i].tensors} & {t.name for t in points[i + 1].tensors}
        if shared:
            break
    else:
        pytest.fail("no tensor of this model crosses two cuts: the test shows nothing")
    between = executor.run_on(i, i + 1, executor.run_front(i, inputs).crossing)
    direct = executor.run_front(i + 1, inputs)
    for name, value in direct.crossing.items():
        np.testing.assert_allclose(between.crossing[name], value, atol=1e-4)
