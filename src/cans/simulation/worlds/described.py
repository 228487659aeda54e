"""From a TOML file to the `World` that it describes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cans.errors import InputError, unknown_name
from cans.learning.arithmetic.arrays import Array, IntArray
from cans.learning.table import PROBE_BYTES, PartitionTable
from cans.models.onnx.loading import load
from cans.models.points.points import find_points
from cans.models.points.table import PartitionTable as ModelTable
from cans.simulation.worlds.drift import Step, Steps
from cans.simulation.worlds.layered import shared_out
from cans.simulation.worlds.trace import trace_world
from cans.simulation.worlds.trace_file import find_trace
from cans.simulation.worlds.world import Noise, World, check_devices
from cans.simulation.worlds.world_file import ChangeEntry, NoiseEntry, WorldFile
from cans.toml_file import parsed, read_toml

DEVICES = 25  # of a trace, unless the user says how many


def is_world_file(world: str) -> bool:
    """Whether a world is given as a file, and not by its name."""
    return world.endswith(".toml")


def read_world(path: Path, devices: int | None = None) -> World:
    """The world of a TOML file. `devices`: so many, in the proportions of the file; None: as many
    as it says. Whatever is wrong is one line that names the file and the key."""
    described = parsed(WorldFile, read_toml(path), path)
    described = replace(described, name=described.name or path.stem)
    if devices is not None:
        check_devices(devices)
    try:
        world = (_of_trace if described.trace else _composed)(described, path.parent, devices)
        steps = tuple(_step(world, each, n) for n, each in enumerate(described.changes, 1))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return replace(world, name=described.name, drift=Steps(steps) if steps else None)


def _of_trace(described: WorldFile, folder: Path, devices: int | None) -> World:
    file = find_trace(Path(described.trace), folder)
    return trace_world(file, DEVICES if devices is None else devices)


@dataclass(frozen=True)
class _Model:
    """What is cut: the learner's table, and the work before and behind every point."""

    table: PartitionTable
    front_macs: Array
    back_macs: Array
    bytes: Array


def _composed(described: WorldFile, folder: Path, devices: int | None) -> World:
    """A world in which types, networks and the server each contribute on their own."""
    model = _built(described.model, folder) if described.model else _listed(described)
    counts = [each.count for each in described.devices.values()]
    server, noise = described.server, described.noise or NoiseEntry()
    assert server is not None  # a file without one is refused
    exchange_ms = 1.0 if described.exchange_ms is None else described.exchange_ms
    ms_per_byte = {name: 8e-3 / each.mbps for name, each in described.networks.items()}
    world = World.of(
        model.table,
        devices=sum(counts) if devices is None else devices,
        front_ms={
            name: _takes(each.front_ms, each.gmacs, model.front_macs, f"[devices.{name}]: front_ms")
            for name, each in described.devices.items()
        },
        link_ms={name: (model.bytes * each).tolist() for name, each in ms_per_byte.items()},
        server_ms=_takes(server.ms, server.gmacs, model.back_macs, "[server]: ms"),
        link_fixed_ms=np.where(model.bytes > 0, exchange_ms, 0.0),
        noise=Noise(noise.kind),
        noise_level=noise.level,
    )
    probe = [[PROBE_BYTES[0] * each, exchange_ms] for each in ms_per_byte.values()]
    type_of = shared_out(np.array(counts) / sum(counts), world.devices)
    network_of = _networks_of(described, type_of)
    return replace(
        world,
        type_of=type_of,
        network_of=network_of,
        place_of=type_of * len(ms_per_byte) + network_of,
        probe_ms=np.tile(probe, (len(counts), 1)),
    )


def _built(model: str, folder: Path) -> _Model:
    """The points of a built-in model, or of an ONNX file."""
    loaded = load(folder / model if model.endswith(".onnx") else model)
    points = find_points(loaded)
    table = ModelTable.of(loaded, points, probe_bytes=PROBE_BYTES)
    return _Model(
        table,
        np.array([each.front.total_macs for each in points], dtype=np.float64),
        np.array([each.back.total_macs for each in points], dtype=np.float64),
        np.array(table.bytes_of, dtype=np.float64),
    )


def _listed(described: WorldFile) -> _Model:
    """The points of the file; features as in traces: MACs, bytes and a constant, MACs."""
    points = described.points
    macs = np.array([each.macs for each in points])
    sizes = np.array([each.bytes for each in points], dtype=np.float64)
    table = PartitionTable(
        described.name,
        [each.name for each in points],
        front=macs[:, None],
        link=np.column_stack([sizes, sizes > 0]),
        server=(macs[-1] - macs)[:, None],
        bytes_of=[each.bytes for each in points],
        probe=np.array([[sent, 1.0] for sent in PROBE_BYTES]),
        version="described",
    )
    return _Model(table, macs, macs[-1] - macs, sizes)


def _takes(
    milliseconds: Sequence[float], gmacs: float | None, macs: Array, key: str
) -> Sequence[float]:
    """What every point takes: as the file says, or by the speed that it says."""
    if gmacs is not None:
        return [float(each) / (1e6 * gmacs) for each in macs]
    if len(milliseconds) != len(macs):
        raise InputError(f"{key} must be {len(macs)} numbers, not {len(milliseconds)}")
    idle = 0 if key.endswith("front_ms") else len(macs) - 1
    if milliseconds[idle] != 0:
        where = "first" if idle == 0 else "last"
        raise InputError(f"{key} must be 0 at the {where} point, where nothing runs")
    return milliseconds


def _networks_of(described: WorldFile, type_of: IntArray) -> IntArray:
    """(devices,) the network of each: those of a type take its networks in turn."""
    names = list(described.networks)
    network_of = np.zeros_like(type_of)
    for number, each in enumerate(described.devices.values()):
        behind = [names.index(name) for name in each.networks or names]
        members = np.flatnonzero(type_of == number)
        network_of[members] = np.resize(behind, len(members))
    return network_of


def _step(world: World, change: ChangeEntry, number: int) -> Step:
    def found(kind: str, name: str, known: Sequence[str]) -> int | None:
        if name and name not in known:
            raise InputError(f"[[changes]] {number}: {unknown_name(kind, name, known)}")
        return known.index(name) if name else None

    return Step(
        change.from_round,
        change.until_round,
        (change.front, change.link, change.server),
        found("device", change.device, world.types),
        found("network", change.network, world.networks),
    )
