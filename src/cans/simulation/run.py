"""`cans.simulate`: one policy in one world, over several seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Any

import numpy as np

from cans.errors import InputError, unknown_name
from cans.learning.arithmetic.arrays import contributions
from cans.learning.arithmetic.pooling import merge
from cans.learning.messages import DELIVERIES
from cans.learning.policies import DEFAULT_POLICY, Hyperparameters, Policy
from cans.own_policy import find_policy, owned
from cans.simulation.engines import clustered, compiled, reference
from cans.simulation.engines.arrays import Fleet, lay_out, new_record, theory_radii
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.engines.own_runs import own_runs
from cans.simulation.metrics import Run, mean_of, measure, summary
from cans.simulation.worlds.described import is_world_file, read_world
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.groups import grouped
from cans.simulation.worlds.named import changed, make_world
from cans.simulation.worlds.world import Gamma, Participation, World, check_rounds

ENGINES = ("fast", "reference")

FEW_ROUNDS = 30_000
"""Up to so many rounds the object loop is done before the engine is compiled."""


@dataclass(frozen=True)
class Settings:
    """One simulation; the defaults are the paper's (section V-B)."""

    model: str = "vgg16"  # one of the three backbones
    policy: str | Policy = "fedlinucb-dw"  # a name, or a policy of your own
    world: str | World = "paper"  # a name, or a world of your own, with its table and devices
    devices: int = 25
    rounds: int = 2500
    gamma: float | None = None  # devices of one type differ by up to this share; None: the world's
    gamma_mode: str = Gamma.DEVICE  # drawn once per device, or every round
    noise: str | None = None  # the world's own, unless given
    participation: str = Participation.UNIFORM
    delivery: str = "immediate"  # or uploads wait for the next request
    pool_age: float = 0.0  # rounds that may pass before a policy of fresh pools pulls them again
    trace: Path | None = None  # measured rounds, for world `trace`: a file or a shipped name
    delay: int | None = None  # rounds of a device before it hears of one; None: the world's own
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)

    def __post_init__(self) -> None:
        _ = self.method  # an unknown name is an error now
        if self.trace is not None:
            object.__setattr__(self, "model", self.trace.stem)
        if isinstance(self.world, World):
            if self.trace is not None:
                raise InputError("a world of your own and a trace exclude each other")
            object.__setattr__(self, "model", self.world.table.model)
            object.__setattr__(self, "devices", self.world.devices)
        check_rounds(self.rounds)
        if not self.pool_age >= 0:
            raise InputError(f"pool_age must be 0 or more rounds, not {self.pool_age:g}")
        if self.delivery not in DELIVERIES:
            raise unknown_name("delivery", self.delivery, DELIVERIES)

    @property
    def method(self) -> Policy:
        """The policy itself."""
        return find_policy(self.policy) if isinstance(self.policy, str) else owned(self.policy)

    @property
    def world_name(self) -> str:
        return self.world.name if isinstance(self.world, World) else self.world

    def make_world(self) -> World:
        if isinstance(self.world, World):
            own = self.participation == Participation.UNIFORM
            return changed(
                self.world,
                gamma=self.gamma,
                gamma_mode=self.world.gamma_mode if self.gamma is None else self.gamma_mode,
                noise=self.noise,
                participation=self.world.participation if own else self.participation,
                delay=self.delay,
            )
        return make_world(
            self.world,
            self.model,
            self.devices,
            gamma=self.gamma,
            gamma_mode=self.gamma_mode,
            noise=self.noise,
            participation=self.participation,
            trace=self.trace,
            delay=self.delay,
        )


@dataclass(frozen=True)
class Simulation:
    """What a simulation gave: one `Run` per seed."""

    settings: Settings
    engine: str
    runs: tuple[Run, ...]
    rounds_per_second: float

    @property
    def mean_regret_ms(self) -> float:
        """Milliseconds lost in a whole run against the best choices; the mean over the seeds."""
        return mean_of(self.runs, "regret_ms")

    @property
    def mean_latency_ms(self) -> float:
        """Measured milliseconds of one inference; the mean over rounds and seeds."""
        return mean_of(self.runs, "mean_latency_ms")

    @property
    def mean_estimation_error_ms(self) -> float | None:
        """Milliseconds between predicted and expected latency at the chosen points; the mean over
        rounds and seeds. None: the policy predicts nothing."""
        if any(run.estimation_error_ms is None for run in self.runs):
            return None
        return mean_of(self.runs, "estimation_error_ms")

    @property
    def mean_uploads(self) -> float:
        """Uploads of the whole fleet in a run; the mean over the seeds."""
        return mean_of(self.runs, "uploads")

    @property
    def mean_bytes(self) -> float:
        """Bytes exchanged for learning in a run; the mean over the seeds."""
        return mean_of(self.runs, "bytes")

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `cans simulate --json`."""
        settings = self.settings
        return {
            "model": settings.model,
            "policy": settings.method.name,
            "world": settings.world_name,
            "devices": settings.devices,
            "rounds": settings.rounds,
            "gamma": settings.gamma,
            "delivery": settings.delivery,
            "engine": self.engine,
            "seeds": [run.seed for run in self.runs],
            "runs": [run.to_dict() for run in self.runs],
            **summary(self.runs),
            "rounds_per_second": self.rounds_per_second,
        }


def simulate(
    model: str = "vgg16",
    policy: str | Policy = DEFAULT_POLICY,
    *,
    seeds: int = 3,
    engine: str | None = None,
    world: str | Path | World = "paper",
    devices: int | None = None,
    rounds: int = 2500,
    gamma: float | None = None,
    gamma_mode: str = Gamma.DEVICE,
    noise: str | None = None,
    participation: str = Participation.UNIFORM,
    delivery: str = "immediate",
    pool_age: float = 0.0,
    trace: Path | str | None = None,
    delay: int | None = None,
    hyperparameters: Hyperparameters | None = None,
    progress: Callable[[int], None] | None = None,
    compiling: Callable[[], None] | None = None,
    processes: bool = False,
) -> Simulation:
    """Simulate a policy in a world; the same numbers as `cans simulate`.

    `seeds` runs of `rounds` rounds each, in parallel; `progress` is called with the number of runs
    that were done since the last call, `compiling` before the engine is compiled, which takes
    minutes and is done once. Everything else is a field of `Settings`. A world of your
    own is a TOML file ("my-world.toml") or a value (`World.of`), with its own table and devices;
    a trace is a CSV file or the name of a shipped one. `devices`: 25, or the file's own, unless
    given. `processes`: use all cores without the compiled engine too, for which a script needs
    `if __name__ == "__main__":`.

    >>> result = simulate("vgg16", "oracle", seeds=2, rounds=100, engine="reference")
    >>> result.mean_regret_ms, [run.regret_ms for run in result.runs]
    (0.0, [0.0, 0.0])
    """
    if seeds < 1:
        raise InputError(f"seeds must be at least 1, not {seeds}")
    world = str(world) if isinstance(world, Path) else world
    # A world of Python's making stays in this process: its drift may be a function that cannot
    # travel.
    apart = processes and isinstance(world, str)
    if isinstance(world, World) and devices not in (None, world.devices):
        raise InputError(f"a world of your own has its devices, {world.devices} of them")
    if isinstance(world, str) and is_world_file(world):
        world = read_world(Path(world), devices)
    what = Settings(
        model=model,
        policy=policy,
        world=world,
        devices=Settings.devices if devices is None else devices,
        rounds=rounds,
        gamma=gamma,
        gamma_mode=gamma_mode,
        noise=noise,
        participation=participation,
        delivery=delivery,
        pool_age=pool_age,
        trace=None if trace is None else Path(trace),
        delay=delay,
        hyperparameters=hyperparameters or Hyperparameters(),
    )
    made = what.make_world()  # bad values are errors before anything is compiled or started
    check_sizes(made, what.method)
    chosen = pick_engine(engine, made, seeds * rounds)
    play = partial(play_seed, what, chosen)
    if chosen == "fast":
        if compiling is not None and not compiled.is_compiled():
            compiling()
        compiled.compiled_functions()  # compiled or loaded before the clock starts
        play_seed(replace(what, devices=1, rounds=1), chosen, 0)
    start = time.perf_counter()
    runs = []
    for run in in_parallel(play, range(seeds), chosen, apart):
        runs.append(run)
        if progress is not None:
            progress(1)
    elapsed = time.perf_counter() - start
    runs.sort(key=lambda run: run.seed)
    return Simulation(what, chosen, tuple(runs), seeds * what.rounds / elapsed)


def check_sizes(world: World, policy: Policy) -> None:
    """Raise if a policy knows or keeps something of one size of the input, and the sizes vary; or
    if it is played by a loop of its own, which knows nothing of late feedback."""
    if world.delay and policy.clusters is not None:
        raise InputError(f"policy {policy.name!r} cannot play a world with delayed feedback")
    if world.sizes and (policy.clusters is not None or (policy.knows and not policy.truth)):
        raise InputError(f"policy {policy.name!r} cannot play a trace whose shapes vary")


def pick_engine(name: str | None, world: World | None = None, rounds: float = inf) -> str:
    """The engine that is done first with so many rounds, unless the user says otherwise: the
    compiled one where numba is installed, but a few rounds are not worth compiling it for, and it
    cannot play a world whose rows change from round to round, or whose feedback is late."""
    varies = world is not None and bool(world.sizes or world.delay)
    if name is None:
        few = rounds <= FEW_ROUNDS and not compiled.is_compiled()
        return "fast" if compiled.numba_installed() and not few and not varies else "reference"
    if name == "fast" and varies:
        raise InputError("a world of varying shapes or late feedback needs --engine reference")
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    if name == "fast" and not compiled.numba_installed():
        raise InputError("engine 'fast' needs numba: pip install 'cans-edge[sim]'")
    return name


def in_parallel(
    task: Callable[[int], Run], seeds: range, engine_name: str, processes: bool
) -> Iterator[Run]:
    """Run a task over seeds on all cores: threads for compiled code, processes for Python if they
    may be used; else one after the other."""
    workers = min(cpu_count() or 1, len(seeds))
    if workers == 1 or (engine_name != "fast" and not processes):
        yield from map(task, seeds)
        return
    pool: Executor
    if engine_name == "fast":
        pool = ThreadPoolExecutor(workers)
    else:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    with pool:
        for future in as_completed([pool.submit(task, seed) for seed in seeds]):
            yield future.result()


def play_seed(settings: Settings, engine_name: str, seed: int) -> Run:
    """One run."""
    world = settings.make_world()
    record = play(settings, engine_name, seed, world)
    return measure(seed, record, world, settings)


def draw(settings: Settings, seed: int, world: World) -> Episode:
    """The chance of one run, as much of it as the policy needs."""
    policy, runs = settings.method, settings.hyperparameters.offline_runs
    width = max((world.table.columns(part.explains).shape[1] for part in policy.parts), default=0)
    return world.episode(settings.rounds, seed, runs, width, policy.offline_whole)


def play(settings: Settings, engine_name: str, seed: int, world: World) -> Record:
    """One episode, by either engine."""
    policy, numbers = settings.method, settings.hyperparameters
    check_sizes(world, policy)
    if world.sizes or world.delay:
        engine_name = "reference"  # the one that knows of rows that change, and of late feedback
    episode = draw(settings, seed, world)
    if policy.grouped:
        world = grouped(world, episode)
    radii = None
    if numbers.beta_ms == "theory":
        radii = theory_radii(world, policy, episode, numbers)
    if policy.clusters is not None:
        if not isinstance(numbers.beta_ms, float):
            raise InputError(f"policy {policy.name!r} needs a number for beta_ms")
        return clustered.play(world, policy, numbers, numbers.beta_ms, episode)
    immediate = settings.delivery == "immediate"
    if engine_name == "reference":
        return reference.play(world, policy, numbers, episode, radii, immediate, settings.pool_age)
    fleet = lay_out(world, policy, numbers, radii, immediate, settings.pool_age)
    record = new_record(settings.rounds, len(policy.parts))
    play_fleet(fleet, episode, record, compiled.compiled_functions())
    return record


def play_fleet(
    fleet: Fleet,
    episode: Episode,
    record: Record,
    functions: dict[str, Callable[..., Any]],
) -> None:
    """Let a laid-out fleet join and play, with compiled (or plain) functions."""
    _serve(fleet, episode)
    cold = np.zeros((len(fleet.truth.place_of), 0))
    for part in range(fleet.rules.parts):
        warm = bool(fleet.warm[part])
        functions["enrol"](
            fleet.state,
            fleet.pools,
            fleet.traffic,
            fleet.rules,
            part,
            *contributions(fleet.offline_rows[part]),
            episode.offline_choice if warm else cold.astype(np.int64),
            episode.offline_ms if warm else cold,
        )
    functions["play"](
        fleet.state,
        fleet.pools,
        fleet.traffic,
        fleet.rules,
        fleet.truth,
        episode,
        record,
    )


def _serve(fleet: Fleet, episode: Episode) -> None:
    """Merge what the server has to say of itself."""
    state, pools = fleet.state, fleet.pools
    for upload in own_runs(fleet.server, episode):
        part = fleet.names.index(upload.key.part)
        sums = upload.statistics.pack(state.rows.shape[2])
        choices = upload.statistics.of_choices(pools.choices.shape[3])
        watched, size = fleet.rules.watched[part], state.dimension[part]
        merge(pools, 0, part, sums, 0, 0.0, state.ridge, watched, size, choices)
