"""World `crowded`: a fleet on 100 Mbps beside a small edge box that all of them want."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cans.errors import unknown_name
from cans.simulation.worlds.layered import TIERS, layered_world
from cans.simulation.worlds.world import World

MBPS = 100.0
SLOWER = {"vgg16": 10.0, "resnet50": 20.0, "vit_b16": 10.0}
"""How many times as long as the server of world `layered` the edge box takes."""


def crowded(
    model: str, devices: int, fleet: str = "mixed", server_slower: float | None = None
) -> World:
    """Devices of the paper's three types, or of one of them (`fleet`)."""
    if fleet not in ("mixed", *TIERS):
        raise unknown_name("fleet", fleet, ["mixed", *TIERS])
    world = layered_world("crowded", model, devices, {"default": MBPS}, ("float32", "uint8"))
    slower = SLOWER[model] if server_slower is None else server_slower
    world = replace(world, server_ms=world.server_ms * slower)
    if fleet == "mixed":
        return world
    kind = np.full(devices, list(TIERS).index(fleet))
    return replace(world, type_of=kind, place_of=kind)


def pause_of(world: World, load: float, workers: float) -> float:
    """Mean seconds between two inferences of a device with which those who would offload on an idle
    server use it for `load` of its time; everyone pauses alike. Zero if even that is not enough."""
    segments = np.array([world.segments_ms(device) for device in range(world.devices)])
    total = segments.sum(axis=1)
    best = total.argmin(axis=1)
    if (best == world.table.local).all():
        best = np.zeros_like(best)  # nobody would: the raw input counts
    devices = np.arange(world.devices)
    service, whole = segments[devices, 2, best], total[devices, best]
    low, high = 0.0, 1e3 * float(service.sum()) / load + float(whole.max())
    for _ in range(60):  # utilisation falls with the pause: bisection
        middle = 0.5 * (low + high)
        used = float((service / (middle + whole)).sum()) / workers
        low, high = (middle, high) if used > load else (low, middle)
    return 1e-3 * high
