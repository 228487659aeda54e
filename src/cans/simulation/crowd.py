"""`cans simulate --world crowded`: one policy among devices that all want the same server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from typing import Any

import numpy as np

from cans.errors import InputError
from cans.learning.arithmetic.arrays import Array, IntArray
from cans.learning.policies import POLICIES, Choose, Hyperparameters, Policy
from cans.own_policy import find_policy, owned
from cans.simulation.engines.crowd import Crowd, CrowdRecord, play
from cans.simulation.engines.crowd_plan import allocate, barrier, thinking, times_of
from cans.simulation.worlds.crowded import crowded, pause_of
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.groups import grouped
from cans.simulation.worlds.world import World, check_devices, check_rounds

ALLOCATED = "allocated"
"""No policy: every device at its choice of the best joint assignment."""

SUMMARISED = ("regret_ms", "mean_latency_ms", "estimation_error_ms", "uploads", "wait_ms")


@dataclass(frozen=True)
class CrowdSettings:
    """One fleet at one server."""

    model: str = "vgg16"
    policy: str | Policy = "cans"  # a name, a policy of your own, or `ALLOCATED`
    devices: int = 25
    rounds: int = 2500  # inferences of the whole fleet
    workers: float = 1.0  # requests that the server runs at once; inf: nobody waits
    load: float = 0.9  # of the server, if everyone did what is best on an idle one
    fleet: str = "mixed"  # the paper's three types, or one of them
    server_slower: float | None = None  # than that of world `layered`; None: 10, ResNet-50 20
    at_once: bool = False  # all ask at the same moment, and again when all are done
    selfish: bool = False  # no toll
    quotes: bool = True
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)

    def __post_init__(self) -> None:
        method = self.method  # an unknown name is an error now
        if method is not None and method.simulation_only:
            raise InputError(f"policy {method.name!r} cannot play world 'crowded'")
        check_devices(self.devices)
        check_rounds(self.rounds)
        if not self.workers >= 1:
            raise InputError(f"workers must be at least 1, not {self.workers}")
        if self.workers < inf and self.workers != int(self.workers):
            raise InputError(f"workers must be a whole number, not {self.workers}")
        if not 0 < self.load < inf:
            raise InputError(f"load must be positive, not {self.load}")
        if isinstance(self.hyperparameters.beta_ms, str):
            raise InputError("world 'crowded' needs a number for beta_ms")

    @property
    def method(self) -> Policy | None:
        """The policy itself; None: devices are assigned."""
        if isinstance(self.policy, Policy):
            return owned(self.policy)
        return None if self.policy == ALLOCATED else find_policy(self.policy)

    @property
    def policy_name(self) -> str:
        return self.policy.name if isinstance(self.policy, Policy) else self.policy

    def make_world(self) -> World:
        return crowded(self.model, self.devices, self.fleet, self.server_slower)


@dataclass(frozen=True, eq=False)
class CrowdRun:
    """One seed's run beside the best joint assignment on the same requests."""

    seed: int
    record: CrowdRecord
    best: CrowdRecord
    points: IntArray

    def to_dict(self) -> dict[str, Any]:
        """The run as it stands in JSON."""
        values, counts = np.unique(self.points, return_counts=True)
        return {
            "seed": self.seed,
            "regret_ms": len(self.points) * (mean_ms(self.record) - mean_ms(self.best)),
            "mean_latency_ms": mean_ms(self.record),
            "best_static_ms": mean_ms(self.best),
            "estimation_error_ms": None,
            "uploads": self.record.uploads,
            "picks": {str(p): c for p, c in zip(values.tolist(), counts.tolist(), strict=True)},
            "wait_ms": float(self.record.wait_ms.mean()),
            "toll_ms": float(self.record.toll_ms.mean()),
            "quotes": int(self.record.quoted.sum()),
            "probes": self.record.probes,
            "looks": int(self.record.looked.sum()),
            "switches_per_device_s": switches(self.record),
            "most_switching_100ms": most_switching(self.record, len(self.points) // 2),
        }


def mean_ms(record: CrowdRecord, since: int = 0) -> float:
    """Mean latency from one inference on, all devices counting alike."""
    active, latency = record.active[since:], record.latency_ms[since:]
    means = [latency[active == device].mean() for device in np.unique(active)]
    return float(np.mean(means))


def switches(record: CrowdRecord) -> float:
    """How often a device's choice differs from its last one, per device and second, looks apart."""
    changed = sum(len(_changes(record, device)) for device in np.unique(record.active))
    elapsed = float(np.nanmax(record.started_s) - np.nanmin(record.started_s))
    return changed / (len(np.unique(record.active)) * max(elapsed, 1e-9))


def most_switching(record: CrowdRecord, since: int = 0, within_s: float = 0.1) -> int:
    """The largest number of devices whose choices differ from their last ones within so long, looks
    apart."""
    when: list[tuple[float, int]] = []
    for device in np.unique(record.active):
        changed = _changes(record, device)
        when += [(float(record.started_s[each]), int(device)) for each in changed if each >= since]
    when.sort()
    most, first = 0, 0
    for last, (time_s, _) in enumerate(when):
        while when[first][0] < time_s - within_s:
            first += 1
        most = max(most, len({device for _, device in when[first : last + 1]}))
    return most


def _changes(record: CrowdRecord, device: int) -> IntArray:
    """The inferences of a device that it chose otherwise than the one before."""
    own = np.flatnonzero((record.active == device) & ~record.looked)
    changed: IntArray = own[1:][np.diff(record.picks[own]) != 0]
    return changed


def play_seed(what: CrowdSettings, seed: int, **changes: Any) -> CrowdRun:
    """One run; `changes` are those of `Crowd`."""
    best = play_record(replace(what, policy=ALLOCATED), seed, **changes)
    record = best if what.method is None else play_record(what, seed, **changes)
    points = np.asarray(what.make_world().table.point_of)[record.picks]
    return CrowdRun(seed, record, best, points)


def play_record(what: CrowdSettings, seed: int, **changes: Any) -> CrowdRecord:
    """What happens under one policy, or at the best joint assignment."""
    world = what.make_world()
    episode, crowd = draw(what, world, seed)
    crowd = replace(crowd, **changes)
    policy = what.method
    if policy is None:
        return play(world, POLICIES["local"], what.hyperparameters, episode, planned(what, crowd))
    seen = grouped(world, episode) if policy.grouped else world
    return play(seen, policy, what.hyperparameters, episode, crowd)


def draw(what: CrowdSettings, world: World, seed: int) -> tuple[Episode, Crowd]:
    """The chance of one run: noise, and who asks when."""
    width = 0
    if what.method is not None and what.method.choose is Choose.SAMPLED:
        columns = (world.table.columns(part.explains) for part in what.method.parts)
        width = max(each.shape[1] for each in columns)
    episode = world.episode(what.rounds, seed, what.hyperparameters.offline_runs, width, True)
    pauses: Array | None = None
    if not what.at_once:
        chance = np.random.default_rng([seed, 1])
        pauses = chance.exponential(_pause(what, world), what.rounds)
    toll = 0.0 if what.selfish else 1.0
    return episode, Crowd(what.workers, None, pauses, what.quotes, toll=toll)


def _pause(what: CrowdSettings, world: World) -> float:
    workers = what.workers if what.workers < inf else float(what.devices)
    return pause_of(world, what.load, workers)


def planned(what: CrowdSettings, crowd: Crowd) -> Crowd:
    """The same crowd with every device at its choice of the best joint assignment."""
    asking = replace(what, policy=ALLOCATED, rounds=1, hyperparameters=Hyperparameters())
    return replace(crowd, assigned=np.array(_assignment(asking)))


@cache
def _assignment(what: CrowdSettings) -> tuple[int, ...]:
    world = what.make_world()
    times = times_of(world)
    if what.at_once:
        cost = barrier(times, what.workers)
    else:
        cost = thinking(times, 1e3 * _pause(what, world), what.workers)
    return tuple(allocate(times, cost).tolist())


def simulate_crowd(
    what: CrowdSettings, seeds: int, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """The JSON document of `cans simulate --world crowded`."""
    if seeds < 1:
        raise InputError(f"seeds must be at least 1, not {seeds}")
    start = time.perf_counter()
    runs = []
    for seed in range(seeds):
        runs.append(play_seed(what, seed).to_dict())
        if progress is not None:
            progress(1)
    elapsed = time.perf_counter() - start
    return {
        "model": what.model,
        "policy": what.policy_name,
        "world": "crowded",
        "devices": what.devices,
        "rounds": what.rounds,
        "fleet": what.fleet,
        "workers": what.workers if what.workers < inf else None,
        "load": what.load,
        "engine": "crowd",
        "seeds": list(range(seeds)),
        "runs": runs,
        **_summary(runs),
        "rounds_per_second": seeds * what.rounds / elapsed,
    }


def _summary(runs: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation over the seeds."""
    mean: dict[str, float | None] = {}
    std: dict[str, float | None] = {}
    for name in SUMMARISED:
        values = [run[name] for run in runs]
        known = None not in values
        mean[name] = float(np.mean(values)) if known else None
        std[name] = float(np.std(values, ddof=1)) if known and len(values) > 1 else None
        if known and len(values) == 1:
            std[name] = 0.0
    return {"mean": mean, "std": std}
