"""`objective` and `fps`: the most answers, or the quickest that keep up; and requests that overlap
are learned as if each had been alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cans
from cans.learning import DeviceLearner, Latencies, PartitionTable, policy_named
from cans.learning.objective import Goal, Objective
from cans.live.device.timing import InFlight
from live.running import running, terms
from live.toy import example, toy

# Milliseconds of front-end, link and server: the whole model is quickest here, a cut in the middle
# gives the most answers, and another one keeps up with 60 a second more quickly than that.
TRUTH = np.array([[0, 30, 8], [8, 6, 6], [14, 1, 4], [17, 0, 0]], dtype=float)


def table() -> PartitionTable:
    return PartitionTable(
        "made-up", ["input", "a", "b", "end"], front=TRUTH[:, :1], link=TRUTH[:, 1:2],
        server=TRUTH[:, 2:],
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-decouple", "linucb-warmstart"])
@pytest.mark.parametrize(
    ("objective", "best"),
    [
        (Objective(Goal.THROUGHPUT), 1),  # 8 ms
        (Objective(fps=50), 3),  # 17 ms of the front-end are quick enough
        (Objective(fps=60), 2),  # and here they are not
        (Objective(fps=300), 1),
    ],
)
def test_the_bottleneck_decides(policy: str, objective: Objective, best: int) -> None:
    learner = DeviceLearner(table(), policy_named(policy))
    learner.join([(row, float(TRUTH[row, 0])) for row in (1, 2, 3)])
    for row in range(4):
        for _ in range(60):
            learner.observe(row, Latencies(*TRUTH[row]))
    learner.flush()
    found = learner.bottlenecks()
    assert found is not None
    if policy == "cans":  # which is sure after so many; others stay a little optimistic
        np.testing.assert_allclose(found, TRUTH.max(axis=1), rtol=0.1)
    serving = objective.serving(TRUTH.max(axis=1), np.ones(4, bool))
    assert int(np.where(serving, TRUTH.sum(axis=1), np.inf).argmin()) == best


def test_a_policy_that_sees_only_the_sum_cannot_tell() -> None:
    assert DeviceLearner(table(), policy_named("linucb")).bottlenecks() is None


def test_nonsense_is_refused() -> None:
    with pytest.raises(cans.InputError, match="objective"):
        cans.Device("127.0.0.1:9", toy(), objective="speed")
    with pytest.raises(cans.InputError, match="--fps"):
        cans.Device("127.0.0.1:9", toy(), fps=0.0)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({"objective": "throughput"}, 3), ({"objective": "latency"}, 4), ({"fps": 35.0}, 3)],
)
def test_a_device_takes_the_choice_that_serves_its_purpose(
    tmp_path: Path, options: dict[str, str], wanted: int
) -> None:
    """The server is half as fast: local is quickest (32 ms), and a quarter of the work given to it
    lets a frame begin every 24 ms."""
    model = toy(block_seconds=0.008)
    with (
        running(toy(block_seconds=0.016), terms=terms("cans")) as server,
        cans.Device(server.address, model, state=tmp_path, **options) as device,
    ):
        points = [each.report.point for each in device.stream([example()] * 50, in_flight=3)]
    usual = max(set(points[25:]), key=points[25:].count)
    assert usual == wanted


def test_overlapping_requests_are_learned_as_if_alone() -> None:
    """A link of 20 ms a request and 5 ms of round trip, a server of 15 ms; three in flight."""
    in_flight, found = InFlight(), []
    link_free = server_free = 0.0
    ready = [0.0, 0.001, 0.002]
    ends: list[float] = []
    for number in range(30):
        began = ready[number]
        arrived = max(began, link_free) + 0.020
        link_free = arrived
        starts = max(arrived + 0.005, server_free)
        queue, server_free = (starts - arrived - 0.005) * 1e3, starts + 0.015
        end = server_free
        ends.append(end)
        ready.append(ends[max(number - 2, 0)] + 0.0005 * number)
        link_ms = (end - began) * 1e3 - 15.0 - queue
        ahead = sum(each > began for each in ends[:-1])
        found.append(in_flight.alone(began, end, link_ms, 15.0, queue, ahead, 5.0))
    for link_ms, server_ms in found:
        assert link_ms == pytest.approx(25.0, abs=1.0)
        assert server_ms == pytest.approx(15.0)
