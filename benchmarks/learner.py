"""One device's round, select and observe, without numba: d = 3, 23 points; beside two peers.

All in one process, in turn and in blocks (warm caches), so that a busy machine slows them alike;
the median of each block, and of those the least: the machine may be busy with other things. The
peers are a plain NumPy LinUCB, as one would write it, and MABWiser's LinUCB.

Then the default policy, in world `layered` (three parts, six features, 23 choices) and with codecs
(eight features, 67 choices): select alone, which is what a caller waits for, and a whole round on
the device, in the mean of 500 rounds, since not every round has an estimate; the server's merge is
not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from cans.learning import POLICIES, DeviceLearner, EdgeAggregator, Latencies
from cans.learning.policies import DEFAULT_POLICY
from cans.simulation.worlds.named import make_world

ROUNDS = 20_000
WARM_UP = 500
BLOCK = 500
PEER_ROUNDS = 1_000  # MABWiser takes milliseconds
BAR_US = 30.0
DEFAULT_ROUNDS = 3_000
SELECT_BAR_US, ROUND_BAR_US = 30.0, 150.0

Step = Callable[[float, float], None]


def ours(policy: str) -> Step:
    """One device and its server; uploads are exchanged between the timed rounds."""
    learner = DeviceLearner(make_world("paper", "vgg16", 25).table, POLICIES[policy])
    edge = EdgeAggregator(POLICIES[policy])
    for upload in learner.join([(point, 1.0) for point in range(1, 6)]):
        learner.adopt(edge.merge(upload))

    def step(front: float, back: float) -> None:
        choice = learner.select()
        for upload in learner.observe(choice, Latencies(front, back, 0.0)):
            learner.adopt(edge.merge(upload))

    return step


def plain_numpy() -> Step:
    """The LinUCB one would write: one matrix, solved when choosing."""
    rows = make_world("paper", "vgg16", 25).table.columns(("front", "link", "server"))
    sigma, b = 0.01 * np.eye(rows.shape[1]), np.zeros(rows.shape[1])

    def step(front: float, back: float) -> None:
        nonlocal sigma, b
        inverse = np.linalg.inv(sigma)
        width = np.sqrt(np.einsum("ci,ij,cj->c", rows, inverse, rows))
        x = rows[np.argmin(rows @ (inverse @ b) - 50.0 * width)]
        sigma += np.outer(x, x)
        b += (front + back) * x

    return step


def mabwiser() -> Step | None:
    """MABWiser has one regression per arm; the point's features are the context."""
    try:
        from mabwiser.mab import MAB, LearningPolicy
    except ImportError:
        return None
    rows = make_world("paper", "vgg16", 25).table.columns(("front", "link", "server"))
    arms = list(range(len(rows)))
    model = MAB(arms=arms, learning_policy=LearningPolicy.LinUCB(alpha=1.0, l2_lambda=0.01), seed=1)
    context = np.ones((1, rows.shape[1]))
    model.fit(arms, [-10.0] * len(arms), np.ones((len(arms), rows.shape[1])))

    def step(front: float, back: float) -> None:
        arm = model.predict(context)
        model.partial_fit([arm], [-(front + back)], context)

    return step


def default_policy(name: str) -> dict[str, float]:
    """Microseconds of `cans` in a world, VGG-16: select alone, after the estimate was made ahead of
    it, and estimate, select and observe together."""
    world, policy = make_world(name, "vgg16", 25), POLICIES[DEFAULT_POLICY]
    learner, edge = DeviceLearner(world.table, policy), EdgeAggregator(policy)
    segments, rng = np.array(world.segments_ms(0)), np.random.default_rng(1)
    points = [world.table.local, 3, 7, 12, 18]
    for upload in learner.join([(point, float(segments[0, point])) for point in points]):
        learner.adopt(edge.merge(upload))
    alone, whole = [], []
    for _ in range(DEFAULT_ROUNDS + WARM_UP):
        start = perf_counter_ns()
        learner.get_ready()
        ready = perf_counter_ns()
        choice = learner.select()
        selected = perf_counter_ns()
        measured = Latencies(*(segments[:, choice.row] * rng.lognormal(0.0, 0.1, 3)).tolist())
        observing = perf_counter_ns()
        uploads = learner.observe(choice, measured)
        observed = perf_counter_ns()
        for upload in uploads:
            learner.acknowledge(edge.merge(upload))
        alone.append(selected - ready)
        whole.append(selected - start + observed - observing)
    means = np.array(whole[WARM_UP:]).reshape(-1, BLOCK).mean(axis=1)
    return {
        "select": quietest(alone),
        "round, median": quietest(whole),
        "round": float(means.min()) / 1e3,  # with the rounds in which an estimate is due
    }


def quietest(nanoseconds: list[int]) -> float:
    """Microseconds: the least of the blocks' medians, without the first block."""
    blocks = np.array(nanoseconds[WARM_UP:]).reshape(-1, BLOCK)
    return float(np.median(blocks, axis=1).min()) / 1e3


def run() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    front, back = rng.normal(10.0, 5.0, (2, ROUNDS + WARM_UP)).tolist()
    steps = {
        "fedlinucb-dw": ours("fedlinucb-dw"),
        "linucb": ours("linucb"),
        "plain NumPy LinUCB": plain_numpy(),
    }
    if (peer := mabwiser()) is not None:
        steps["MABWiser LinUCB"] = peer
    taken: dict[str, list[int]] = {name: [] for name in steps}
    for block in range(0, ROUNDS + WARM_UP, BLOCK):
        for name, step in steps.items():
            if name.startswith("MABWiser") and block >= PEER_ROUNDS:
                continue
            for t in range(block, block + BLOCK):
                start = perf_counter_ns()
                step(front[t], back[t])
                taken[name].append(perf_counter_ns() - start)
    median = {name: quietest(each) for name, each in taken.items()}
    default = {name: default_policy(name) for name in ("layered", "codecs")}
    return {
        "microseconds_per_round": median,
        "microseconds_over_all_rounds": {
            name: float(np.median(each[WARM_UP:])) / 1e3 for name, each in taken.items()
        },
        "peer_over_ours": {
            f"{peer} / {policy}": median[peer] / median[policy]
            for peer in list(median)[2:]
            for policy in ("fedlinucb-dw", "linucb")
        },
        "bar_microseconds": BAR_US,
        "microseconds_of_the_default_policy": default,
        "bars_of_the_default_policy": {"select": SELECT_BAR_US, "round": ROUND_BAR_US},
        "bars_met": {
            **{policy: median[policy] <= BAR_US for policy in ("fedlinucb-dw", "linucb")},
            "cans select": default["layered"]["select"] <= SELECT_BAR_US,
            "cans round": default["layered"]["round"] <= ROUND_BAR_US,
        },
    }
