"""One device that lies, at length in the slow suite; here with latencies that are handed out."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from cans.learning import (
    Choice,
    Download,
    Latencies,
    PoolKey,
    SufficientStatistics,
    Upload,
    policy_named,
)
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.timing import Measured, Offline
from cans.live.server.trust.opinions import LEISURE
from cans.live.store import Store
from cans.live.store.shares import is_banned
from cans.live.wire.link import Link
from cans.live.wire.messages import PoolUpdate, SyncRequest
from cans.live.wire.terms import Terms
from tests.live.faults import wait_until
from tests.live.poison import (
    BAR_AFTER,
    BAR_WITH,
    HONEST,
    INPUTS,
    LAYERS,
    NETWORKS,
    SERVER_S,
    SIZES,
    play,
    prices,
    shrinking,
)
from tests.live.poisoners import STRATEGIES, Liar, Truth
from tests.live.running import Running, running

QUICK = ("x100", "/100", "bulk")
NOISE = 0.05


def nominal(name: str) -> Truth:
    """What a device would measure on a machine that has nothing else to do."""
    block, network = HONEST[name]
    steps, nbytes = np.arange(LAYERS + 1.0), np.array([*(4 * size for size in SIZES), 0])
    link = np.where(nbytes > 0, 2.0 + nbytes * 8e-3 / NETWORKS[network], 0.0)
    behind = 1e3 * SERVER_S * (LAYERS - steps)
    return {"front": 1e3 * block * steps, "link": link, "server": behind}


class NoTime(Hooks):
    """A link that takes no time; probes are told what they would have taken."""

    def pace(self, size: int, until: float = inf) -> float:
        return 2.0 + size * 8e-3 / (self.pace_mbps or inf)


class Handed:
    """A stopwatch that hands out the nominal latencies with a little noise."""

    def __init__(self, truth: Truth, seed: int) -> None:
        self._truth = truth
        self._random = np.random.default_rng(seed)

    def latencies(self, choice: Choice, measured: Measured) -> Latencies:
        found = (self._truth[part][choice.row] for part in ("front", "link", "server"))
        return Latencies(*(float(each * self._random.lognormal(0, NOISE)) for each in found))

    def offline(self, measured: Offline) -> Offline:
        front = self._truth["front"]
        return [(row, float(front[row] * self._random.lognormal(0, NOISE))) for row, _ in measured]


@pytest.mark.parametrize("way", QUICK)
def test_a_liar_is_found_and_named(tmp_path: Path, way: str) -> None:
    """It begins when they do, in the group and the network of two of them each."""
    policy, model = policy_named("cans"), shrinking(0.0)
    fresh = Terms(policy, fresh_pools=policy.fresh)
    with running(model, terms=fresh, workers=8, books=True) as server, ExitStack() as on:
        devices = []
        for seed, (name, (_, network)) in enumerate(HONEST.items()):
            hooks = NoTime(pace_mbps=NETWORKS[network], stopwatch=Handed(nominal(name), seed))
            devices.append(on.enter_context(
                Device(server.address, shrinking(0.0), type=name[:4], network=network, name=name,
                       state=tmp_path / name, hooks=hooks)
            ))  # fmt: skip
        liar = Liar(server.address, "liar", "", "near", 36.0, model.table, nominal("fast-near"),
                    replace(STRATEGIES[way], every=0.01), "fast")  # fmt: skip
        recorder = server.server.recorder

        def named() -> bool:
            for device in devices:
                device.run(INPUTS)
            recorder.digest()
            texts = [each.text for each in recorder.events if each.device == "liar"]
            return any("says what no other does" in each for each in texts)

        wait_until(named, 60.0)
        wait_until(lambda: is_taken_back(server.store(), "liar"), 10.0)
        liar.leave()


def test_a_device_whose_measurements_contradict_a_pool_trusts_its_own(tmp_path: Path) -> None:
    """The pool says that large tensors take five times as long, which no pace makes up for."""
    policy, model, name = policy_named("cans"), shrinking(0.0), "fast-near"
    truth = nominal(name)
    hooks = NoTime(pace_mbps=NETWORKS["near"], stopwatch=Handed(truth, 0), force=0)
    fresh = Terms(policy, fresh_pools=policy.fresh)
    with running(model, terms=fresh, books=True) as server, Device(
        server.address, shrinking(0.0), network="near", name=name, state=tmp_path, hooks=hooks
    ) as device:  # fmt: skip
        for choice in (0, 3, 5) * 10:
            hooks.force = choice
            device.run(INPUTS)
        device.settle()
        experience = device._experience
        learner = experience.learner
        assert learner is not None
        (key,) = (each for each in experience.known if each.part == "link")

        def told(factor: float, round_: int) -> tuple[float, bool]:
            """What sending the raw input is expected to take on the link after a pool that says
            this of large tensors, and whether the pool is believed."""
            sums = SufficientStatistics.zero(2)
            for row in (0, 1, 3, 5) * 100:
                latency = truth["link"][row] * (factor if row < 2 else 1.0)
                one = SufficientStatistics.of(model.table.link[row], float(latency))
                sums += replace(one.scaled(9 / (9 + truth["link"][row] ** 2)), weight=1.0, count=1)
            with device._turns.turn(time.monotonic() + 5.0), device._turns.learner:
                version = experience.known[key]
                pool = Download(key, version[0], sums, version[1] + round_)
                experience.adopt([PoolUpdate(pool)])
                learner.get_ready()
                expected = learner.part_predictions("link")[0][0]
            return float(expected), key not in experience._contradicted

        assert told(1.0, 1) == (pytest.approx(truth["link"][0], rel=0.1), True)
        assert told(5.0, 2) == (pytest.approx(truth["link"][0], rel=0.2), False)
        assert told(1.0, 3) == (pytest.approx(truth["link"][0], rel=0.1), True)


def is_taken_back(store: Store, device: str) -> bool:
    """Whether some pool does not believe a device for a while."""
    keys = [account.key for account in store.accounts()]
    with store._transaction() as transaction:
        return any(is_banned(transaction, key, device, time.time()) for key in keys)


def test_who_lied_is_not_believed_after_a_restart_of_the_server(tmp_path: Path) -> None:
    """Three devices speak for themselves; the store remembers what the server has found."""
    model, url = shrinking(0.0), f"sqlite:{tmp_path / 'pools.sqlite'}"
    policy = policy_named("cans")
    key = PoolKey(model.digest, model.table.version, policy.name, "link", "network:near")
    rows, truth = model.table.link, nominal("fast-near")["link"]

    def says(link: Link, device: str, number: int, factor: float = 1.0) -> Download:
        row = number % LAYERS
        one = SufficientStatistics.of(rows[row], float(truth[row]) * factor)
        said = replace(one.scaled(9 / (9 + float(truth[row]) ** 2)), weight=1.0)
        upload = Upload(device, "first", key, 0, number, said)
        return link.sync(SyncRequest((upload,)), 10.0).result(10.0).pools[0].download

    def weight(server: Running) -> float:
        return float(server.store().downloads([key])[0].statistics.weight)

    fresh = Terms(policy, fresh_pools=policy.fresh)
    with running(model, terms=fresh, store=url, books=True) as server:
        with closing(Link(server.address)) as link:
            for number in range(60):
                for device, factor in (("a", 1.0), ("b", 1.0), ("liar", 5.0)):
                    says(link, device, number, factor)
                time.sleep(LEISURE / 30)  # the server looks at a pool once in so long
        wait_until(lambda: is_taken_back(server.store(), "liar"), 10.0)
    with running(model, terms=fresh, store=url, books=True) as server:
        before = weight(server)
        with closing(Link(server.address)) as link:
            says(link, "liar", 60, 5.0)
            assert weight(server) == before, "counted, kept, and not believed"
            says(link, "a", 60)
            assert weight(server) > before


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_what_a_liar_costs() -> None:
    """Twelve strategies, real latencies, picks priced by those of forced choices."""
    price, missed = prices(), []
    calm = [play(None, price) for _ in range(3)]
    for way, strategy in STRATEGIES.items():
        found = play(strategy, price)
        for when, bar in (("during", BAR_WITH), ("after", BAR_AFTER)):
            names = list(found.during)
            without = np.mean([each.cost(price, when, names) for each in calm])
            ratio = found.cost(price, when, names) / without
            if ratio > bar:
                missed.append(f"{way}, {when}: {ratio:.3f}")
    assert not missed
