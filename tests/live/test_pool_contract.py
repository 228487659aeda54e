"""What every `BackEndPool` must do: threads of this process, and replicas on a Ray cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from cans.errors import Busy, CansError
from cans.live.server.backends import Answer, BackEndPool, Work
from cans.live.server.cluster.options import ClusterOptions
from cans.live.server.workers import Ran, RunnerGone, Workers
from cans.live.split import SplitModel
from live.toy import example, toy

# Ray leaves processes to the collector of garbage.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
QUEUE = 3
SIZE, LAYERS, BLOCK_S = 64, 4, 0.02


@dataclass(frozen=True)
class ToySource:
    """A toy model, made where it is served."""

    size: int = SIZE
    layers: int = LAYERS
    block_seconds: float = BLOCK_S

    def load(self) -> SplitModel:
        return toy(self.size, self.layers, self.block_seconds)


MODEL = ToySource().load()


@pytest.fixture(scope="module", params=["threads", pytest.param("ray", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "threads":
        yield request.param
        return
    from cans.simulation.workers.ray_cluster import connect

    tests = str(Path(__file__).parent.parent)  # where replicas find the toy model
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
        ray, _ = connect("local", "--cluster")
    yield request.param
    ray.shutdown()


@pytest.fixture
def pool(kind: str) -> Iterator[BackEndPool]:
    made: BackEndPool
    if kind == "threads":
        made = Workers(1, QUEUE)
    else:
        from cans.live.server.cluster.pool import ClusterPool

        options = ClusterOptions("local", 1, 1)
        made = ClusterPool(lambda: [MODEL], options, QUEUE, lambda _: ToySource())
    try:
        yield made
    finally:
        made.close()


def work(point: int = 0, seed: int = 0, device: str = "d", **more: Any) -> Work:
    value = example(SIZE, seed)["t0"] + np.float32(point)
    return Work(MODEL, point, "float32", [memoryview(value.tobytes())], device, **more)


def right(answer: Answer, seed: int) -> None:
    expected = example(SIZE, seed)["t0"] + LAYERS
    np.testing.assert_allclose(answer.outputs["y"], expected, rtol=1e-6)


def test_results_times_and_count(pool: BackEndPool) -> None:
    async def main() -> None:
        first = await pool.run(work())
        right(first, 0)
        assert first.compute_ms >= LAYERS * BLOCK_S * 1e3
        assert first.queue_ms < 0.8 * first.compute_ms
        both = await asyncio.gather(pool.run(work(2, 1)), pool.run(work(2, 2, "e")))
        right(both[0], 1)
        right(both[1], 2)
        waited = sorted(each.queue_ms for each in both)
        assert waited[1] - waited[0] > 0.5 * 2 * BLOCK_S * 1e3  # one after the other
        assert (pool.inside, pool.count) == (0, 1)
        assert pool.queue_ms.count == 3

    asyncio.run(main())


def test_a_device_s_jobs_keep_their_order(pool: BackEndPool) -> None:
    order: list[int] = []

    async def one(seed: int) -> None:
        right(await pool.run(work(3, seed)), seed)
        order.append(seed)

    async def main() -> None:
        await asyncio.gather(*(one(seed) for seed in range(QUEUE + 1)))

    asyncio.run(main())
    assert order == sorted(order)


def test_refusal_when_full_and_by_deadline(pool: BackEndPool) -> None:
    async def main() -> None:
        await pool.run(work())  # now it knows how long one takes
        running = [asyncio.ensure_future(pool.run(work())) for _ in range(QUEUE + 1)]
        await asyncio.sleep(0.01)
        with pytest.raises(Busy):
            await pool.run(work())
        await asyncio.gather(*running)
        began = perf_counter()
        with pytest.raises(Busy, match="deadline"):
            await pool.run(work(remaining_ms=LAYERS * BLOCK_S * 1e3 / 4))
        assert perf_counter() - began < LAYERS * BLOCK_S

    asyncio.run(main())


def test_what_is_cancelled_while_it_waits_never_runs(pool: BackEndPool) -> None:
    async def main() -> None:
        first = asyncio.ensure_future(pool.run(work()))
        second = asyncio.ensure_future(pool.run(work()))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await first
        assert pool.queue_ms.count == 1
        right(await pool.run(work(0, 3)), 3)

    asyncio.run(main())


def test_bad_bytes_are_the_caller_s_error_and_no_more(pool: BackEndPool) -> None:
    async def main() -> None:
        wrong = Work(MODEL, 0, "float32", [memoryview(b"short")], "d")
        with pytest.raises(CansError, match="tensor"):
            await pool.run(wrong)
        right(await pool.run(work(0, 4)), 4)
        assert pool.count == 1

    asyncio.run(main())


def test_shutdown_finishes_what_runs(pool: BackEndPool) -> None:
    async def main() -> None:
        running = asyncio.ensure_future(pool.run(work()))
        waiting = asyncio.ensure_future(pool.run(work()))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(pool.close)
        right(await running, 0)
        with pytest.raises(CansError):
            await waiting

    asyncio.run(main())


class Mortal:
    """A runner that does so many jobs and dies in the next."""

    def __init__(self, jobs: int) -> None:
        self._left = jobs

    def run(self, work: Work) -> Ran:
        if not self._left:
            raise RunnerGone("it died")
        self._left -= 1
        return Ran({"y": np.zeros(1)}, 1.0, True)


def test_a_dead_runner_s_job_is_done_by_another_and_nobody_left_means_busy() -> None:
    gone = []
    pool = Workers(0, QUEUE, on_gone=gone.append)

    async def main() -> None:
        with pytest.raises(Busy, match="nobody"):
            await pool.run(work())
        pool.add(Mortal(1))
        pool.add(Mortal(10))
        for _ in range(6):
            await pool.run(work())
        assert pool.count in (1, 2)
        pool.shrink(1)
        for _ in range(20):
            try:
                await pool.run(work())
            except Busy:
                break
        assert pool.count == 0
        assert pool.inside == 0
        with pytest.raises(Busy):
            await pool.run(work())

    asyncio.run(main())
    pool.close()  # waits for the threads, which tell last of all
    assert len(gone) == 2
