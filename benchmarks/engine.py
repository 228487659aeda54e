"""The compiled engine on one core: rounds per second, against the object loop, and by fleet size.

fedlinucb-dw on VGG-16 in world paper (d = 3, 23 points). Compiling is not counted.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from cans.learning.policies import Hyperparameters, policy_named
from cans.simulation import loop
from cans.simulation.compiled import compiled_functions
from cans.simulation.fleet import lay_out, new_record
from cans.simulation.run import play_fleet
from cans.simulation.worlds import make_world

BAR_ROUNDS = 1_000_000
BAR_RATIO = 50
FLEETS = (25, 10_000, 1_000_000)


def compiled_seconds(devices: int, rounds: int) -> tuple[float, float]:
    """(joining, playing) of one run; drawing the episode is not counted."""
    policy, numbers = policy_named("fedlinucb-dw"), Hyperparameters()
    world = make_world("paper", "vgg16", devices)
    functions = compiled_functions()
    enter = functions | {"play": lambda *_: None}
    leave = functions | {"enrol": lambda *_: None}
    episode = world.episode(rounds, 0, numbers.offline_runs)
    fleet = lay_out(world, policy, numbers, None, True)
    record = new_record(rounds, len(policy.parts))
    start = perf_counter()
    play_fleet(fleet, episode, record, enter)
    joined = perf_counter()
    play_fleet(fleet, episode, record, leave)
    return joined - start, perf_counter() - joined


def object_loop_seconds(rounds: int) -> float:
    policy, numbers = policy_named("fedlinucb-dw"), Hyperparameters()
    world = make_world("paper", "vgg16", 25)
    episode = world.episode(rounds, 0, numbers.offline_runs)
    start = perf_counter()
    loop.play(world, policy, numbers, episode)
    return perf_counter() - start


def run() -> dict[str, Any]:
    compiled_seconds(1, 1)  # compiled, or loaded from the cache
    best = min(compiled_seconds(25, 1_000_000)[1] for _ in range(5))
    slow = min(object_loop_seconds(5_000) for _ in range(3))
    speed, slow_speed = 1_000_000 / best, 5_000 / slow
    by_fleet = {}
    for devices in FLEETS:
        joining, playing = compiled_seconds(devices, 200_000)
        by_fleet[str(devices)] = {
            "join_seconds": joining,
            "microseconds_per_round": playing / 200_000 * 1e6,
        }
    return {
        "rounds_per_second": speed,
        "object_loop_rounds_per_second": slow_speed,
        "ratio": speed / slow_speed,
        "by_fleet": by_fleet,
        "bar_rounds_per_second": BAR_ROUNDS,
        "bar_ratio": BAR_RATIO,
        "bars_met": {
            "rounds_per_second": speed >= BAR_ROUNDS,
            "ratio": speed / slow_speed >= BAR_RATIO,
        },
    }
