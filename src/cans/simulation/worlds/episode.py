"""One run's worth of chance, drawn before the run: which device acts, and what disturbs it.

Policies and engines only read it, so every one of them meets exactly the same rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, IntArray
from cans.learning.arithmetic.offline import offline_choices, own_choices
from cans.learning.table import PROBE_BYTES

if TYPE_CHECKING:
    from cans.simulation.worlds.world import World

KEY_FRAMES = 0.1  # share of important frames, for ANS
STALLS = 0.1  # share of exchanges that a radio repeats, in heavy-tailed noise


class Episode(NamedTuple):
    """Axis 0 is the round, except in the offline arrays, where it is the device."""

    active: IntArray  # (rounds,)            which device
    moved: IntArray  # (rounds,)             what is added to every device's place: later periods
    scale: Array  # (rounds, 3)              of front, link and server at this round
    factor: Array  # (rounds, 3)             multiplicative noise
    shift: Array  # (rounds, 3)              additive noise, milliseconds
    uniform: Array  # (rounds,)              for policy `random`
    draw: Array  # (rounds,)                 which measured sample, in world `trace`
    normals: Array  # (rounds, d)            for policy `lints`
    key_frame: BoolArray  # (rounds,)        for policy `ans`
    clip: bool  # a measured latency below zero is zero
    offline_choice: IntArray  # (devices, runs)
    offline_ms: Array  # (devices, runs)     front latencies of partial local runs
    server_choice: IntArray  # (runs,)       of the server's own, before anyone joins
    server_ms: Array  # (runs,)              back-end latencies of them
    whole_ms: Array  # (devices,)            the lower of two whole local runs, for grouping
    arrival_factor: Array  # (devices, sizes) noise of the exchanges timed on arrival
    arrival_shift: Array  # (devices, sizes)

    @property
    def rounds(self) -> int:
        return len(self.active)


def draw_episode(
    world: World,
    rounds: int,
    rng: np.random.Generator,
    offline_runs: int,
    normals: int,
    offline_whole: bool,
) -> Episode:
    """Draw an episode of a world; `offline_whole`: everyone's first offline run is the whole model,
    and the others are `offline_choices`."""
    devices, choices = world.devices, world.table.choices
    speed = _speeds(world, devices, rng)
    if world.participation == "uniform":
        active = rng.integers(0, devices, rounds)
    else:
        active = np.arange(rounds) % devices
    scale = np.ones((rounds, 3))
    scale[:, 0] = 1.0 / speed[active]
    if world.gamma and world.gamma_mode == "round":
        scale[:, 0] /= rng.uniform(1 - world.gamma, 1 + world.gamma, rounds)
    if world.drift is not None:
        scale *= world.drift(world, active, rng)
    factor, shift = _noise(world, (rounds, 3), rng)

    offline_choice = rng.integers(1, choices, (devices, offline_runs))  # points 1..P
    # Of another stream, so that all the rest is alike whichever runs a policy wants.
    wanted = offline_whole and offline_runs > 0
    draws = rng.spawn(1)[0].random((devices, offline_runs)) if wanted else None
    table = world.table
    if world.samples.size:
        offline_choice, offline_ms = _measured_offline(world, offline_runs, rng, draws)
    else:
        if draws is not None:
            _, first = np.unique(table.point_of, return_index=True)  # without a codec
            partial = first[table.front[first].any(axis=1)].tolist()
            offline_choice = np.array(
                [offline_choices(table.front, partial, table.local, each) for each in draws]
            )
        expected = world.front_ms[world.place_of[:, None], offline_choice] / speed[:, None]
        offline_factor, offline_shift = _noise(world, (devices, offline_runs, 3), rng)
        offline_ms = expected * offline_factor[..., 0] + offline_shift[..., 0]
    offline_ms = offline_ms * world.report[:, None]
    clip = world.noise == "truncated"
    episode = Episode(
        active=active.astype(np.int64),
        moved=_moved(world, rounds),
        scale=scale,
        factor=factor,
        shift=shift,
        uniform=rng.random(rounds),
        draw=rng.random(rounds),
        normals=rng.standard_normal((rounds, normals)),
        key_frame=rng.random(rounds) < KEY_FRAMES,
        clip=clip,
        offline_choice=offline_choice,
        offline_ms=np.maximum(offline_ms, 0.0) if clip else offline_ms,
        server_choice=np.zeros(0, dtype=np.int64),
        server_ms=np.zeros(0),
        whole_ms=_whole(world, speed, rng),
        arrival_factor=np.ones((0, 0)),
        arrival_shift=np.zeros((0, 0)),
    )
    # Drawn last, so that everything else is as in runs that were made before there were these.
    arrival_factor, arrival_shift = _noise(world, (devices, len(PROBE_BYTES), 3), rng)
    server_choice, server_ms = _served_offline(world, offline_runs, rng)
    return episode._replace(
        server_choice=server_choice,
        server_ms=server_ms,
        arrival_factor=np.ascontiguousarray(arrival_factor[..., 1]),
        arrival_shift=np.ascontiguousarray(arrival_shift[..., 1]),
    )


def _moved(world: World, rounds: int) -> IntArray:
    """(rounds,) how many places further the places of each round's period are."""
    period = np.searchsorted(world.starts, np.arange(rounds), side="right") - 1
    return np.asarray(period * world.places, dtype=np.int64)


def _whole(world: World, speed: Array, rng: np.random.Generator) -> Array:
    """(devices,) what each device reports for the whole model: the lower of two runs."""
    factor, shift = _noise(world, (world.devices, 2, 3), rng)
    expected = world.front_ms[world.place_of, world.table.local] / speed
    runs = expected[:, None] * factor[..., 0] + shift[..., 0]
    lower: Array = runs.min(axis=1) * world.report
    return lower


def _measured_offline(
    world: World, runs: int, rng: np.random.Generator, draws: Array | None
) -> tuple[IntArray, Array]:
    """Offline runs of a trace: front latencies that were measured for the device's place. A device
    that can only send the raw input has nothing to run: its rows are zero and teach nothing."""
    has_front = world.table.front.any(axis=1)
    choices = np.zeros((world.devices, runs), dtype=np.int64)
    latencies = np.zeros((world.devices, runs))
    for device, place in enumerate(world.place_of):
        allowed = world.allowed[place]
        partial = allowed & has_front
        measured = np.flatnonzero(partial if partial.any() else allowed)
        choices[device] = rng.choice(measured, runs)
        if draws is not None and world.table.local in measured:
            runnable, local = measured.tolist(), world.table.local
            choices[device] = offline_choices(world.table.front, runnable, local, draws[device])
        rows = (rng.random(runs) * world.sample_count[place, choices[device]]).astype(np.int64)
        latencies[device] = world.samples[place, choices[device], rows, 0]
    return choices, latencies


def _served_offline(
    world: World, offline_runs: int, rng: np.random.Generator
) -> tuple[IntArray, Array]:
    """Back-ends that the server runs by itself, as the first device would ask for them."""
    place = world.place_of[0]
    offered = np.flatnonzero(world.allowed[place] & world.table.server.any(axis=1))
    choice = np.array(own_choices(offered.tolist(), offline_runs), dtype=np.int64)
    factor, shift = _noise(world, (len(choice), 3), rng)
    if world.samples.size:
        rows = (rng.random(len(choice)) * world.sample_count[place, choice]).astype(np.int64)
        return choice, world.samples[place, choice, rows, 2]
    served = world.server_ms[place, choice] * factor[:, 2] + shift[:, 2]
    return choice, np.maximum(served, 0.0) if world.noise == "truncated" else served


def _speeds(world: World, devices: int, rng: np.random.Generator) -> Array:
    """alpha of C = g × alpha, where it is drawn once per device."""
    if world.gamma and world.gamma_mode == "device":
        return rng.uniform(1 - world.gamma, 1 + world.gamma, devices)
    return np.ones(devices)


def _noise(world: World, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Array, Array]:
    """(factor, shift). The paper disturbs the back-end as one; its variance is halved between
    link and server, so that their sum is disturbed exactly as in the paper."""
    draws = rng.standard_normal(shape)
    if world.noise.relative:
        level = np.sqrt(np.log1p(world.noise_level**2))  # this share as standard deviation
        factor = np.exp(level * draws - level**2 / 2)
        if world.noise == "heavy-tailed":
            factor[..., 1] *= _stalls(shape[:-1], rng)
        return factor, np.zeros(shape)
    shares = world.noise_level * np.sqrt(np.array([1.0, 0.5, 0.5]))
    return np.ones(shape), draws * shares


def _stalls(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Factors of mean one: one exchange in ten stalls and takes 1 + X times as long, where X has
    mean one and a tail that falls with the square."""
    stalled = rng.random(shape) < STALLS
    factor: Array = (1.0 + stalled * rng.pareto(2.0, shape)) / (1.0 + STALLS)
    return factor
