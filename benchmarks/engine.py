"""The compiled engine on one core: rounds per second, against the object loop, and by fleet size.

fedlinucb-dw on VGG-16 in world paper (d = 3, 23 points), and the default policy in world layered
(three parts, d = 14). Compiling is not counted. Seconds are of processor time: one thread runs, and
the machine may be busy with other things.

By fleet size, linucb does the same work in every round, so what differs is where the state lies: in
the cache, or in a gigabyte of memory. For fedlinucb-dw a larger fleet also means more first
meetings: each device uploads on its first offload, so the uploads per round stand beside it.
"""

from __future__ import annotations

from time import process_time
from typing import Any

from cans.learning.policies import DEFAULT_POLICY, Hyperparameters, policy_named
from cans.simulation.engines import reference
from cans.simulation.engines.arrays import lay_out, new_record
from cans.simulation.engines.compiled import compiled_functions
from cans.simulation.run import play_fleet
from cans.simulation.worlds.named import make_world

BAR_ROUNDS = 1_000_000
DEFAULT_BAR_ROUNDS = 200_000
BAR_RATIO = 50
FLEETS = (25, 10_000, 1_000_000)


def compiled_run(
    name: str, devices: int, rounds: int, world_name: str = "paper"
) -> dict[str, float]:
    """Join and play one run; drawing the episode is not counted."""
    policy, numbers = policy_named(name), Hyperparameters()
    world = make_world(world_name, "vgg16", devices)
    functions = compiled_functions()
    episode = world.episode(rounds, 0, numbers.offline_runs, offline_whole=policy.offline_whole)
    fleet = lay_out(world, policy, numbers, None, True)
    record = new_record(rounds, len(policy.parts))
    start = process_time()
    play_fleet(fleet, episode, record, functions | {"play": lambda *_: None})
    joined = process_time()
    play_fleet(fleet, episode, record, functions | {"enrol": lambda *_: None})
    return {
        "join_microseconds_per_device": (joined - start) / devices * 1e6,
        "microseconds_per_round": (process_time() - joined) / rounds * 1e6,
        "uploads_per_round": float(record.uploads.mean()),
        "state_bytes_per_device": sum(getattr(a, "nbytes", 0) for a in fleet.state) / devices,
    }


def object_loop_seconds(rounds: int) -> float:
    policy, numbers = policy_named("fedlinucb-dw"), Hyperparameters()
    world = make_world("paper", "vgg16", 25)
    episode = world.episode(rounds, 0, numbers.offline_runs)
    start = process_time()
    reference.play(world, policy, numbers, episode)
    return process_time() - start


def run() -> dict[str, Any]:
    compiled_run("fedlinucb-dw", 1, 1)  # compiled, or loaded from the cache
    runs = [compiled_run("fedlinucb-dw", 25, 1_000_000) for _ in range(5)]
    speed = 1e6 / min(run["microseconds_per_round"] for run in runs)
    default_runs = [compiled_run(DEFAULT_POLICY, 25, 100_000, "layered") for _ in range(5)]
    default_speed = 1e6 / min(run["microseconds_per_round"] for run in default_runs)
    slow_speed = 5_000 / min(object_loop_seconds(5_000) for _ in range(3))
    by_fleet = {
        f"{name}, {devices} devices": compiled_run(name, devices, 1_000_000)
        for name in ("linucb", "fedlinucb-dw")
        for devices in FLEETS
    }
    return {
        "rounds_per_second": speed,
        "object_loop_rounds_per_second": slow_speed,
        "ratio": speed / slow_speed,
        "default_policy_rounds_per_second": default_speed,
        "by_fleet": by_fleet,
        "bar_rounds_per_second": BAR_ROUNDS,
        "bar_ratio": BAR_RATIO,
        "bar_default_policy_rounds_per_second": DEFAULT_BAR_ROUNDS,
        "bars_met": {
            "rounds_per_second": speed >= BAR_ROUNDS,
            "ratio": speed / slow_speed >= BAR_RATIO,
            "default_policy_rounds_per_second": default_speed >= DEFAULT_BAR_ROUNDS,
        },
    }
