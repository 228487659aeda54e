"""The server books its own time: what devices say of it is counted, kept, and never believed."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cans.errors import RunError
from cans.learning import (
    DeviceLearner,
    Download,
    Hyperparameters,
    Latencies,
    PoolKey,
    SufficientStatistics,
    Upload,
    policy_named,
)
from cans.learning.arithmetic.offline import OWN_RUNS
from cans.live.clock import Clock
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.server.backends import BackEnds
from cans.live.server.catalogue import Catalogue
from cans.live.server.own_runs import OwnRuns
from cans.live.server.pools import Pools
from cans.live.server.trust.booking import AT_ONCE, PER_SECOND, Booking
from cans.live.server.workers import Workers
from cans.live.store import open_store
from cans.live.wire.link import Link
from cans.live.wire.messages import SyncRequest
from tests.live.faults import wait_until
from tests.live.ledger import Ledger, arrived, unsent
from tests.live.running import Running, running, terms
from tests.live.toy import ToyPoint, ToyTensor, example, toy

BLOCK = 0.002  # seconds, on the server


def pool_of(server: Running, part: str = "server"):
    return next(each for each in server.store().accounts() if each.key.part == part)


def per_block_ms(server: Running) -> float:
    """What the pool says of one block, by the best-known row of the table."""
    statistics = pool_of(server).pool.statistics
    return float(statistics.b[0] / statistics.sigma[0, 0]) / 4  # features are scaled to 4 blocks


@pytest.mark.parametrize("fresh", [True, False], ids=["told", "not told"])
def test_the_pool_is_what_the_server_has_timed(tmp_path: Path, fresh: bool) -> None:
    """Every back-end is booked once, also what was left when the server stopped. Devices upload
    nothing of it; where they would not hear of the pool otherwise they do, and that is counted
    beside it and weighs nothing."""
    url, book = f"sqlite:{tmp_path / 'pools.sqlite'}", Ledger()
    with running(toy(block_seconds=BLOCK), terms=terms("cans", fresh_pools=fresh), books=True,
                 store=url) as server:  # fmt: skip
        with Device(server.address, toy(block_seconds=0.02), state=tmp_path / "d",
                    hooks=Hooks(force=0, stopwatch=book)) as device:  # fmt: skip
            for _ in range(40):
                device.infer(example())
            device.settle()
        assert per_block_ms(server) >= 0.99e3 * BLOCK  # a busy machine only sleeps longer
        booking, by_itself = server.server.pools.booking, 2 if fresh else 0
        assert booking is not None
        wait_until(lambda: booking.count == 40 + by_itself)
    with closing(open_store(url)) as store:
        (account,) = (each for each in store.accounts() if each.key.part == "server")
        (mine,) = (each for each in device._experience.state.records if each.key == account.key)
        assert account.pool.statistics.weight <= 40.0 + by_itself
        if fresh:
            assert account.total == 40 + by_itself
            assert mine.sequence == 0, "nothing was ever uploaded"
        else:
            observed = sum(each.server is not None for _, each in book.rounds)
            twice = mine.sent.count if mine.sent and arrived(store, device, mine) else 0
            assert account.total + unsent(mine).count - twice == observed + 40


def test_a_server_is_known_before_anyone_asks_it_for_anything(tmp_path: Path) -> None:
    """It runs back-ends by itself as soon as a device has joined, and the device hears of it."""
    agreed = terms("cans", fresh_pools=True, hyperparameters=Hyperparameters())
    with running(toy(block_seconds=BLOCK), terms=agreed, books=True) as server:
        with Device(server.address, toy(block_seconds=0.02), state=tmp_path) as device:
            wait_until(lambda: pool_of(server).pool.statistics.count == OWN_RUNS)
            assert per_block_ms(server) >= 0.99e3 * BLOCK
            assert per_block_ms(server) < 10e3 * BLOCK
            wait_until(lambda: known_of_server(device) == OWN_RUNS)
        assert not device.last


def test_a_server_whose_model_cannot_be_tried_serves_on(tmp_path: Path) -> None:
    """Made-up tensors may be nonsense to a model; what devices send is not."""
    model = toy(block_seconds=BLOCK)
    real, tried = model.executor.run_back, threading.Event()

    def only_real_tensors(point, crossing):
        if not tried.is_set():
            tried.set()
            raise RunError("made-up")
        return real(point, crossing)

    model.executor.run_back = only_real_tensors
    agreed = terms("cans", fresh_pools=True)
    with running(model, terms=agreed, books=True) as server, Device(
        server.address, toy(block_seconds=0.02), state=tmp_path
    ) as device:  # fmt: skip
        assert tried.wait(10.0)
        device.hooks.force = 0
        device.infer(example())
        assert device.last is not None
        assert not device.last.fallback


def test_runs_of_models_that_are_gone_are_forgotten() -> None:
    """A server that devices give models to sees many."""

    async def come_and_go() -> int:
        catalogue = Catalogue([], terms("cans", fresh_pools=True))
        pools, workers = Pools(open_store("memory:"), catalogue, Clock()), Workers(1, 4)
        runs = OwnRuns(BackEnds(catalogue, workers), pools, catalogue)
        try:
            for number in range(5):
                model = toy(table=replace(toy().table, digest=f"model-{number}"))
                catalogue.put(model)
                runs.begin(model)
                await runs._tasks[model.digest]
                catalogue.remove(model.name)
            return len(runs._tasks)
        finally:
            await runs.close()
            workers.close()
            await pools.close()

    assert asyncio.run(come_and_go()) == 1


def test_tensors_that_cannot_be_made_up_are_an_error_of_ours() -> None:
    model = toy()
    model.executor.points[0] = ToyPoint("p0", (ToyTensor("t0", (1, 4), "no type"),))

    async def try_it() -> None:
        catalogue, workers = Catalogue([model], terms("cans")), Workers(1, 4)
        try:
            await BackEnds(catalogue, workers).try_choice(model, 0)
        finally:
            workers.close()

    with pytest.raises(RunError, match="cannot make up tensors"):
        asyncio.run(try_it())


def known_of_server(device: Device) -> int:
    records = {each.key.part: each for each in device._experience.state.records}
    return records["server"].synced.count


def test_a_device_counts_what_it_saw_until_it_hears_of_it() -> None:
    learner = DeviceLearner(toy().table, policy_named("cans"), booked=["server"])
    for _ in range(3):
        uploads = learner.observe(0, Latencies(1.0, 2.0, 8.0))
        assert "server" not in {each.key.part for each in uploads}
    own = {each.key.part: each for each in learner.records()}["server"]
    assert (own.local.count, own.sent) == (3, None)
    seen = SufficientStatistics.of(toy().table.server[0], 8.0)
    learner.adopt(Download(own.key, 0, seen + seen + seen, 1))
    (heard,) = (each for each in learner.records() if each.key == own.key)
    assert (heard.local.count, heard.synced.count) == (0, 3)
    learner.observe(0, Latencies(1.0, 2.0, 8.0))
    learner.adopt(Download(own.key, 0, seen, 1))  # no news: what was seen since still counts
    (later,) = (each for each in learner.records() if each.key == own.key)
    assert later.local.count == 1
    assert "server" not in {each.key.part for each in learner.flush()}


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_lie_about_the_server_moves_nothing(tmp_path: Path, factor: float) -> None:
    model = toy(block_seconds=BLOCK)
    with running(model, terms=terms("cans", fresh_pools=True), books=True) as server:
        with Device(server.address, toy(block_seconds=0.02), state=tmp_path) as device:
            device.hooks.force = 0
            for _ in range(30):
                device.infer(example())
            device.settle()
        wait_until(lambda: pool_of(server).pool.statistics.weight > 10)
        before = pool_of(server).pool.statistics
        key = PoolKey(model.digest, model.table.version, "cans", "server", "everyone")
        lie = SufficientStatistics.of(model.table.server[0], 8.0 * factor)
        link = Link(server.address)
        for sequence in range(20):
            upload = Upload("liar", "first", key, pool_of(server).pool.epoch, sequence, lie)
            reply = link.sync(SyncRequest((upload,)), 10.0).result(10.0)
            assert not reply.pools[0].refused, "an older device says it in good faith"
        link.close()
        after = pool_of(server)
        np.testing.assert_array_equal(after.pool.statistics.sigma, before.sigma)
        np.testing.assert_array_equal(after.pool.statistics.b, before.b)
        assert after.pool.statistics.count == before.count + 20
        assert after.pool.epoch == 0
        assert after.pool.doubted is not None


def test_only_what_explains_the_server_alone_is_its_own() -> None:
    model = toy()
    offered = {model.digest: model}.get
    key = PoolKey(model.digest, model.table.version, "cans", "server", "everyone")
    own = Booking(terms("cans"), offered)
    assert own.books(key)
    assert not own.books(key._replace(part="link"))
    assert not own.books(key._replace(model="another"))
    joint = Booking(terms("fedlinucb-dw"), offered)  # its back part is link and server in one
    assert not joint.books(key._replace(policy="fedlinucb-dw", part="back"))
    assert joint.timed(model, 0, "float32", 5.0, 0.0) == ()
    varying = replace(model, rows=object())  # features that only the device knows
    assert not Booking(terms("cans"), {model.digest: varying}.get).books(key)


def test_what_a_store_did_not_take_goes_again() -> None:
    model = toy()
    booking = Booking(terms("cans"), {model.digest: model}.get)
    (first,) = booking.timed(model, 0, "float32", 5.0, 10.0)
    booking.failed(10.0)
    assert booking.timed(model, 0, "float32", 5.0, 10.5) == ()
    assert booking.timed(model, 1, "float32", 4.0, 11.5) == (first,)
    assert sum(each.statistics.count for each in booking.rest()) == 1, "the same number, once"


def test_a_busy_server_books_some_of_what_it_does() -> None:
    model = toy()
    booking = Booking(terms("cans"), {model.digest: model}.get)
    for i in range(10_000):  # a thousand a second
        booking.timed(model, i % 4, "float32", 5.0, i / 1000)
    assert AT_ONCE + 9 * PER_SECOND <= booking.count < AT_ONCE + 11 * PER_SECOND
