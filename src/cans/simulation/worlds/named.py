"""The worlds by name. To add one, write a function (model, devices) -> World and list it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from cans.errors import InputError, unknown_name
from cans.learning.arithmetic.arrays import IntArray
from cans.learning.grouping import AUTO
from cans.learning.table import PROBE_BYTES
from cans.models.points.cost import Half
from cans.simulation.worlds.backbones import load_table
from cans.simulation.worlds.bent import BENT
from cans.simulation.worlds.drift import FAST_MBPS, everything_moves
from cans.simulation.worlds.layered import compose, layered, layered_world
from cans.simulation.worlds.trace import trace_world
from cans.simulation.worlds.world import (
    Gamma,
    Noise,
    Participation,
    World,
    check_devices,
    member,
)

MOST_DELAY = 1000  # rounds


def _mac_world(name: str, model: str, devices: int, *, size_per_element: float) -> World:
    """MAC/f and size/B, the paper's simulation (section V-B)."""
    document, table = load_table(model, "mac3")
    front = np.array([Half(**point["front"]).total_macs for point in document["points"]])
    back = np.array([Half(**point["back"]).total_macs for point in document["points"]])
    size = np.array([point["bytes"] / 4 for point in document["points"]]) * size_per_element
    speed = np.array([20e12, 10.5e12, 75e9])  # MAC/s: Orin Nano, Xavier NX, Raspberry Pi 5
    return compose(
        name,
        table,
        devices,
        front_ms=1e3 * front / speed[:, None],
        link_ms=1e3 * size[None, :] / 1e7,
        server_ms=1e3 * back / 312e12,
        link_fixed_ms=np.zeros(table.choices),
        probe_ms=np.array([[1e3 * size_per_element * PROBE_BYTES[0] / 4 / 1e7, 0.0]]),
    )


def paper(model: str, devices: int) -> World:
    """Sizes in elements over 1e7 per second: the reading under which the paper's figures appear."""
    return _mac_world("paper", model, devices, size_per_element=1.0)


def literal(model: str, devices: int) -> World:
    """Sizes in float32 bits over 10 Mbps, as printed: local inference is best everywhere."""
    return _mac_world("literal", model, devices, size_per_element=32.0)


def drifting(model: str, devices: int) -> World:
    """`layered` at 50 Mbps, whose link changes twice, whose server is overloaded for a while and
    whose first type of device is throttled near the end."""
    return layered_world("drifting", model, devices, {"default": FAST_MBPS}, drift=everything_moves)


def cells(model: str, devices: int) -> World:
    """`layered` with three networks of different bandwidth."""
    return layered_world("cells", model, devices, {"fibre": 200.0, "wifi": 50.0, "cellular": 10.0})


def codecs(model: str, devices: int) -> World:
    """`layered` on 50 Mbps, and what crosses may be written in 32, 16 or 8 bits."""
    return layered_world(
        "codecs", model, devices, {"default": 50.0}, codecs=("float32", "float16", "uint8")
    )


def heterogeneous(model: str, devices: int) -> World:
    """`layered`, but devices of one type differ by up to 30 %."""
    return replace(layered(model, devices), name="heterogeneous", gamma=0.3)


def adversary(model: str, devices: int) -> World:
    """`layered`, but one device (a Raspberry Pi) reports five times what it measures. A part that
    explains the server alone is the server's own to observe, and no device's to lie about."""
    return replace(layered(model, devices), name="adversary", liars={devices - 1: 5.0})


def misspecified(model: str, devices: int) -> World:
    """`layered`, bent so that no linear model fits: a cache cliff on the device, batching on the
    server, slow start on the link."""
    world = layered(model, devices)
    cliff = np.where(world.front_ms > 0.4 * world.front_ms.max(axis=1, keepdims=True), 1.3, 1.0)
    slow_start = np.where(world.link_ms > world.probe_ms[:, :1] * 8, 2.0, 0.0)
    return replace(
        world,
        name="misspecified",
        front_ms=world.front_ms * cliff,
        link_ms=world.link_ms + slow_start,
        server_ms=np.ceil(world.server_ms),
    )


def unlabelled(model: str, devices: int) -> World:
    """`layered`, but nobody has named the types of the devices."""
    return relabelled(layered(model, devices), "unlabelled", np.zeros(devices, dtype=np.int64))


def mislabelled(model: str, devices: int) -> World:
    """`layered`, but half of the devices of each type carry labels that were shuffled."""
    world = layered(model, devices)
    labels = world.type_of.copy()
    # Every second device of each type; who gets whose label is the same in every run.
    moved = np.flatnonzero(np.arange(devices) % 2 == 0)
    labels[moved] = np.random.default_rng(devices).permutation(labels[moved])
    return relabelled(world, "mislabelled", labels)


def relabelled(world: World, name: str, labels: IntArray) -> World:
    """The same devices under other labels; a single label is none."""
    types = world.types if labels.any() else (AUTO,)
    return replace(world, name=name, types=types, type_of=labels)


def delayed(model: str, devices: int) -> World:
    """`layered`, but a device has four requests on their way and hears of each three late."""
    return replace(layered(model, devices), name="delayed", delay=3)


WORLDS: dict[str, Callable[[str, int], World]] = {
    "paper": paper,
    "literal": literal,
    "layered": layered,
    "drifting": drifting,
    "cells": cells,
    "codecs": codecs,
    "heterogeneous": heterogeneous,
    "misspecified": misspecified,
    "adversary": adversary,
    "unlabelled": unlabelled,
    "mislabelled": mislabelled,
    **BENT,
}

OBJECT_LOOP_WORLDS: dict[str, Callable[[str, int], World]] = {"delayed": delayed}
"""Those that the compiled engine does not play."""


def make_world(
    name: str,
    model: str,
    devices: int,
    *,
    gamma: float | None = None,
    gamma_mode: str = Gamma.DEVICE,
    noise: str | None = None,
    participation: str = Participation.UNIFORM,
    trace: Path | None = None,
    delay: int | None = None,
) -> World:
    """The world of this name, with the user's changes; bad values are errors that say why."""
    makers = {**WORLDS, **OBJECT_LOOP_WORLDS}
    if name not in (*makers, "trace"):
        _refuse_elsewhere(name)
        raise unknown_name("world", name, [*makers, "trace", "crowded", "or a file, WORLD.toml"])
    if (name == "trace") is not (trace is not None):
        raise InputError("world 'trace' and --trace FILE.csv (or a shipped NAME) belong together")
    check_devices(devices)
    world = trace_world(trace, devices) if trace is not None else makers[name](model, devices)
    return changed(
        world,
        gamma=gamma,
        gamma_mode=gamma_mode,
        noise=noise,
        participation=participation,
        delay=delay,
    )


def _refuse_elsewhere(name: str) -> None:
    """Raise if it is a world that only some commands play."""
    if name == "crowded":
        raise InputError("world 'crowded' is played by `cans simulate --world crowded` alone")
    if name.endswith(".toml"):
        raise InputError(f"world {name!r} is a file: only `cans simulate` plays those")


def changed(
    world: World,
    *,
    gamma: float | None,
    gamma_mode: str,
    noise: str | None,
    participation: str,
    delay: int | None,
) -> World:
    """A world with the user's changes; None: its own."""
    if gamma is not None and not 0 <= gamma < 1:
        raise InputError(f"gamma must be at least 0 and below 1, not {gamma}")
    if delay is not None and not 0 <= delay <= MOST_DELAY:
        raise InputError(f"delay must be 0 to {MOST_DELAY} rounds, not {delay}")
    if noise is not None and world.samples.size:
        raise InputError("noise cannot be given with a trace: its samples have what was measured")
    level = world.noise_level
    kind = world.noise if noise is None else member(Noise, noise, "noise")
    if kind.relative is not world.noise.relative:
        level = 0.1 if kind.relative else 5.0
    return replace(
        world,
        delay=world.delay if delay is None else delay,
        gamma=world.gamma if gamma is None else gamma,
        gamma_mode=member(Gamma, gamma_mode, "gamma mode"),
        noise=kind,
        noise_level=level,
        participation=member(Participation, participation, "participation"),
    )
