"""A network nobody has told of yet is timed by the first device on it, before any inference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cans.learning import DeviceLearner, PartitionTable, policy_named
from cans.learning.table import PROBE_BYTES
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from tests.live.faults import wait_until
from tests.live.running import Running, running, terms
from tests.live.toy import toy

LARGEST = 262_144  # bytes that the widest cut of the table sends
SMALL = 1_024  # of one whose tensors are all smaller than a probe


def probed_table(largest: int = LARGEST) -> PartitionTable:
    steps = np.arange(5.0)
    return PartitionTable(
        "toy",
        [f"p{int(step)}" for step in steps],
        front=steps[:, None],
        link=np.column_stack([np.array([1.0, 0.5, 0.25, 0.1, 0.0]), steps < 4]),
        server=(4 - steps)[:, None],
        probe=np.array([[size / largest, 1.0] for size in PROBE_BYTES]),
        digest=f"probed-{largest}",
    )


def of_the_link(server: Running, network: str) -> int:
    """Observations in the pool of a network."""
    return sum(
        account.total
        for account in server.store().accounts()
        if account.key.part == "link" and account.key.scope == f"network:{network}"
    )


def test_every_device_times_its_network_when_it_arrives(tmp_path: Path) -> None:
    model = toy(table=probed_table())
    with running(model, terms=terms("cans")) as server:
        folders = (tmp_path / name for name in "abc")
        paced = Hooks(pace_mbps=8.0)
        with Device(server.address, model, state=next(folders), network="wifi", hooks=paced):
            wait_until(lambda: of_the_link(server, "wifi") == len(PROBE_BYTES))
            with (
                Device(
                    server.address, model, state=next(folders), network="wifi", hooks=paced
                ) as second,
                Device(server.address, model, state=next(folders), network="lte") as other,
            ):
                wait_until(lambda: of_the_link(server, "lte") == len(PROBE_BYTES))
                wait_until(lambda: of_the_link(server, "wifi") == 2 * len(PROBE_BYTES))
                second.settle()
                other.settle()
                # The pool tells the second one how slow 8 Mbit/s are, and that byte by byte.
                mean, _ = second._experience.learner.predictions()  # type: ignore[union-attr]
                assert 8 * LARGEST / 8e3 * 0.7 < mean[0] < 8 * LARGEST / 8e3 * 6  # a busy machine
        assert of_the_link(server, "wifi") == 2 * len(PROBE_BYTES)


def test_a_probe_may_be_larger_than_any_tensor(tmp_path: Path) -> None:
    model = toy(table=probed_table(SMALL))
    with (
        running(model, terms=terms("cans")) as server,
        Device(server.address, model, state=tmp_path) as device,
    ):
        wait_until(lambda: of_the_link(server, "default") == len(PROBE_BYTES))
        device.settle()
        assert device.refused == 0
        assert all(account.refused == 0 for account in server.store().accounts())


def test_which_exchanges_are_wanted(tmp_path: Path) -> None:
    model = toy(table=probed_table())
    with (
        running(model, terms=terms("cans")) as server,
        Device(server.address, model, state=tmp_path) as device,
    ):
        wait_until(lambda: of_the_link(server, "default") == len(PROBE_BYTES))
        device.settle()
        learner = device._experience.learner
        assert learner is not None
        now = device._clock.now()
        assert not learner.trials.wants_probe(now)
        assert learner.trials.wants_probe(now + 60.0)  # what was told is old
        assert learner.trials.wants_all_probes()  # should it arrive somewhere again
        table = learner.table
        for never in ("fedlinucb-dw", "cans-no-probes"):
            assert not DeviceLearner(table, policy_named(never)).trials.wants_all_probes()
        # An answer that came when the terms had changed is of no use, and does no harm.
        assert DeviceLearner(table, policy_named("fedlinucb-dw")).observe_probe([3.0, 9.0]) == ()
        unprobed = DeviceLearner(replace(table, probe=None), learner.policy)
        assert not unprobed.trials.wants_all_probes()
        assert not unprobed.trials.wants_probe(now)
