"""Waiting requests of one kind that run together: right, fair, in time, and only where faster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cans.errors import InputError, RunError
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.server.admission import Admission
from cans.live.server.backends import Answer, Work
from cans.live.server.crowd.batches import WORTH, Batches, deadlines
from cans.live.server.workers import Workers
from cans.live.split import Array, Cutting, SplitModel
from cans.live.splitting import load_model, split
from tests.live.onnx_models import fully_connected
from tests.live.running import running, terms
from tests.live.toy import toy

WIDTH = 256


# --- whose turn ---


def test_company_is_of_one_kind_and_overtakes_nobody() -> None:
    admission = Admission(1, 16)
    for kind in ("x", "y"):  # both known to take 10 ms
        ticket, _ = admission.admit(kind, None, "first")
        admission.next()
        admission.finished(ticket, 10.0)
    lead, _ = admission.admit("x", None, "a")
    admission.next()
    own = [admission.admit("x", None, "a")[0] for _ in range(3)]
    other, _ = admission.admit("x", None, "b")
    assert admission.company(lead) == [other, *own], "in turn: a device waits behind itself"
    admission.admit("y", None, "c")
    assert admission.company(lead) == [other], "the rest would overtake what c waits for"


def test_those_who_ride_take_no_worker_and_no_place_in_the_queue() -> None:
    admission = Admission(1, 2)
    lead, _ = admission.admit("x", None, "a")
    admission.next()
    mates = [admission.admit("x", None, device)[0] for device in "bc"]
    for each in mates:
        admission.ride(each)
    assert (admission.running, admission.waiting, admission.inside) == (1, 0, 3)
    assert (admission.riding("z"), admission.riding("b")) == (2, 1)
    for device in "de":
        admission.admit("x", None, device)  # the queue is empty
    for each in (lead, *mates):
        admission.finished(each, 4.0)
    assert (admission.running, admission.inside) == (0, 2)
    assert admission.expected_ms("x") == 4.0, "what one more of them costs"


# --- how many ---


def some_work(found: dict[int, float], **more: Any) -> Work:
    executor = SimpleNamespace(try_batches=lambda point, most: found)
    model = SimpleNamespace(name="m", digest="m", rows=None, executor=executor)
    return Work(model, 0, "float32", [], "d", **more)  # type: ignore[arg-type]


def at_once(work: Callable[[], None], name: str) -> None:
    work()


def tried(found: dict[int, float]) -> tuple[Batches, Work]:
    batches, work = Batches(8, at_once), some_work(found)
    assert batches.size(work, [inf, inf]) == 1, "not before it was tried"
    assert batches.size(work, [inf, inf]) == 1, "nor before a single run was timed"
    batches.ran(work, 1, 10.0)
    return batches, work


def test_a_batch_is_used_where_it_is_faster_and_only_of_those_who_wait() -> None:
    batches, work = tried({2: 0.8, 4: 0.5, 8: 0.6})
    assert batches.size(work, [inf]) == 1
    assert batches.size(work, [inf] * 3) == 2
    assert batches.size(work, [inf] * 4) == batches.size(work, [inf] * 8) == 4, "the best of them"
    assert batches.takes_ms(work, 4) == pytest.approx(20.0)
    assert batches.takes_ms(work) == 10.0


def test_nobody_is_made_late() -> None:
    batches, work = tried({2: 0.8, 4: 0.5})
    assert batches.size(work, [inf, inf, inf, 19.0]) == 2
    assert batches.size(work, [15.0, inf, inf, inf]) == 1
    urgent = replace(work, remaining_ms=50.0)
    assert deadlines([work, urgent], [5.0, 5.0]) == [inf, 45.0]


def test_what_is_slower_than_it_was_measured_is_left_and_tried_again_later() -> None:
    batches, work = tried({2: 0.8})
    for _ in range(20):
        batches.ran(work, 2, 25.0)  # two single runs take 20
    assert batches.size(work, [inf, inf]) == 1
    chances = sum(batches.size(work, [inf, inf]) == 1 for _ in range(2_000))
    assert 100 < chances < 2_000
    batches, work = tried({2: 1.02})
    assert batches.size(work, [inf, inf]) == 1, f"a batch must take less than {WORTH}"


def test_one_disturbed_run_decides_nothing() -> None:
    batches, work = tried({2: 0.6})
    batches.ran(work, 2, 1e4)
    assert batches.size(work, [inf, inf]) == 2


def test_what_cannot_be_run_in_batches_or_failed_once_never_is() -> None:
    batches, work = tried({})
    assert all(batches.size(work, [inf] * 8) == 1 for _ in range(2_000))
    batches, work = tried({2: 0.5})
    batches.failed(work)
    assert batches.size(work, [inf, inf]) == 1


def test_options_are_checked() -> None:
    for wrong in (0, -1, 65):
        with pytest.raises(InputError, match="--batch"):
            running(toy(), batch=wrong).__enter__()


# --- with ONNX Runtime ---


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SplitModel:
    path = fully_connected(tmp_path_factory.mktemp("wide") / "wide.onnx", WIDTH)
    return split(load_model(path, Cutting()), Cutting())


@pytest.fixture
def workers() -> Iterator[Workers]:
    """One worker that has four requests run together whenever they wait."""
    made = Workers(1, 64, batch=4)
    assert made.batches is not None
    made.batches._start = at_once
    yield made
    made.close()


def value(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((1, WIDTH)).astype(np.float32)


def work_of(model: SplitModel, seed: int, **more: Any) -> Work:
    return Work(model, 0, "float32", [memoryview(value(seed).tobytes())], f"d{seed}", **more)


def right(model: SplitModel, answer: Answer, seed: int) -> None:
    name = model.points[0].tensors[0].name
    alone = model.executor.run_back(0, {name: value(seed)}).outputs["scores"]
    np.testing.assert_allclose(answer.outputs["scores"], alone, rtol=1e-5, atol=1e-5)


async def together(workers: Workers, works: list[Work]) -> list[Answer | BaseException]:
    return await asyncio.gather(*map(workers.run, works), return_exceptions=True)


def surely(workers: Workers, model: SplitModel) -> None:
    """From now on batches are known to be faster, whatever this machine does meanwhile."""
    batches = workers.batches
    assert batches is not None

    async def some() -> None:
        for _ in range(3):
            await together(workers, [work_of(model, seed) for seed in range(6)])

    asyncio.run(some())
    kind = batches._kinds[model.digest, 0]
    assert set(kind.ratio) == {2, 4}
    kind.ratio = dict.fromkeys(kind.ratio, 0.5)
    kind.alone_ms = 0.1
    batches.requests = 0


def test_every_answer_is_its_own(workers: Workers, model: SplitModel) -> None:
    surely(workers, model)
    found = asyncio.run(together(workers, [work_of(model, seed) for seed in range(24)]))
    for seed, answer in enumerate(found):
        assert isinstance(answer, Answer)
        right(model, answer, seed)
    assert workers.batches is not None
    assert workers.batches.requests >= 16
    assert workers.inside == 0
    assert workers.admission.running == 0


def test_what_one_costs_is_its_share(workers: Workers, model: SplitModel) -> None:
    surely(workers, model)
    executor = model.executor
    slow = SimpleNamespace(hook=lambda *_: __import__("time").sleep(0.02))
    executor.on_block = slow.hook
    try:
        found = asyncio.run(together(workers, [work_of(model, seed) for seed in range(5)]))
    finally:
        executor.on_block = None
    done = [each for each in found if isinstance(each, Answer)]
    assert len(done) == 5
    shares = sorted(each.compute_ms for each in done)
    # How many are together depends on how soon a worker is free; that two are, does not.
    assert shares[0] < 0.6 * shares[-1], "some of them shared a run"
    assert all(each.queue_ms + each.compute_ms >= 20.0 for each in done), "which each waited for"


def test_a_bad_request_spoils_no_other(workers: Workers, model: SplitModel) -> None:
    surely(workers, model)
    works = [work_of(model, seed) for seed in range(9)]
    works[3] = replace(works[3], tensors=[memoryview(b"short")])
    found = asyncio.run(together(workers, works))
    assert isinstance(found[3], BaseException)
    for seed, answer in enumerate(found):
        if seed != 3:
            assert isinstance(answer, Answer), seed
            right(model, answer, seed)


def test_a_batch_that_fails_is_run_one_by_one(
    workers: Workers, model: SplitModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    surely(workers, model)

    def broken(*_: object) -> None:
        raise RunError("out of memory")

    monkeypatch.setattr(model.executor, "run_together", broken)
    found = asyncio.run(together(workers, [work_of(model, seed) for seed in range(9)]))
    for seed, answer in enumerate(found):
        assert isinstance(answer, Answer)
        right(model, answer, seed)
    assert workers.batches is not None
    assert not workers.batches._kinds[model.digest, 0].ratio, "it is not tried again"


def test_a_caller_that_goes_takes_nobody_with_it(workers: Workers, model: SplitModel) -> None:
    surely(workers, model)

    async def main() -> None:
        tasks = [asyncio.ensure_future(workers.run(work_of(model, seed))) for seed in range(12)]
        await asyncio.sleep(0)
        for each in tasks[2::3]:
            each.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for seed, answer in enumerate(found):
            if seed % 3 != 2:
                assert isinstance(answer, Answer)
                right(model, answer, seed)
        while workers.inside:
            await asyncio.sleep(0.01)

    asyncio.run(main())


# --- over the network ---


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw"])
def test_devices_that_ask_at_once_are_answered_together(
    policy: str, model: SplitModel, tmp_path: Path
) -> None:
    devices = 6
    with running(model, terms=terms(policy), workers=1, batch=4) as server:
        pool = server.server.workers
        assert isinstance(pool, Workers)
        assert pool.batches is not None
        made = [
            Device(server.address, model, state=tmp_path / str(i), hooks=Hooks(force=0))
            for i in range(devices)
        ]
        whole = model.executor.run_whole  # type: ignore[attr-defined]

        def ask(number: int) -> None:
            for turn in range(60):
                given = value(1000 * number + turn)
                got = made[number].infer({"input": given})["scores"]
                np.testing.assert_allclose(
                    got, whole({"input": given})["scores"], rtol=1e-5, atol=1e-5
                )
                kind = pool.batches._kinds.get((model.digest, 0))  # type: ignore[union-attr]
                if kind is not None and kind.ratio:
                    kind.ratio = dict.fromkeys(kind.ratio, 0.5)

        with ThreadPoolExecutor(devices) as threads:
            list(threads.map(ask, range(devices)))
        assert pool.batches.requests > 0
        for each in made:
            each.close()
