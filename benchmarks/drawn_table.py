"""A table of measurements as somebody else might publish one, drawn at random.

Whoever measures does it in a way of their own: on machines that are good at one kind of layer and
bad at another, limited by memory or by the launch of each kernel; one sample of each point, fifty,
or a mean of twenty; in microseconds or in whole milliseconds; with outliers or without; with one
column of work for each segment, or one for each kind of layer.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cans.learning.arithmetic.arrays import Array, IntArray

KINDS = ("conv", "depthwise", "fc", "other")
SHARES = (0.5, 0.2, 0.1, 0.2)  # of the layers
MOST_PLACES = 6  # of device type and network
AVERAGED = 20  # samples behind each row of who publishes means
LAUNCH_MS = 0.2  # of each layer, at most
WORTH = 0.95  # of the better end: what a cut takes that is worth it
SEGMENT = 14_600  # bytes that a fresh connection sends at once


@dataclass(frozen=True)
class Network:
    """A chain of layers: what crosses at each point, and the work of each layer."""

    sizes: Array  # (points,) bytes; nothing crosses at the last point
    macs: Array  # (layers,)
    kind: IntArray  # (layers,) index into KINDS


@dataclass(frozen=True)
class Style:
    """How somebody measures and publishes."""

    noise: float  # a share of what is measured
    outliers: float  # a share of the measurements, of 2 to 10 times
    samples: int  # rows of each point
    averaged: bool  # rows are means
    digits: int  # of milliseconds, behind the point
    by_kind: bool  # columns of work for each kind of layer

    def __str__(self) -> str:
        rows = "means" if self.averaged else f"{self.samples} samples"
        columns = ", by kind" if self.by_kind else ""
        outliers = f", {self.outliers:.0%} outliers" if self.outliers else ""
        return f"{rows}, {self.noise:.0%} noise{outliers}, {self.digits} digits{columns}"


@dataclass(frozen=True)
class Fleet:
    """What everything takes, without the noise of who measures it."""

    network: Network
    fronts: list[Array]  # (points,) ms of each type of device
    links: list[Array]  # (points,) ms of each network
    back: Array  # (points,) ms
    places: list[tuple[int, int]]  # of type and network

    def took(self, device: int, link: int) -> Array:
        """(points, 3) milliseconds of front-end, link and server."""
        return np.stack([self.fronts[device], self.links[link], self.back], axis=1)

    @property
    def is_worth_cutting(self) -> bool:
        """Whether a cut is better than both ends somewhere: otherwise there is little to learn."""
        totals = (self.took(*place).sum(axis=1) for place in self.places)
        return any(each[1:-1].min() < WORTH * min(each[0], each[-1]) for each in totals)


def write_table(path: Path, seed: int) -> tuple[str, Style]:
    """Draw a table, write it as a trace, and say what it is."""
    rng = np.random.default_rng(seed)
    while not (fleet := draw_fleet(rng)).is_worth_cutting:
        pass
    style = draw_style(rng)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header(style))
        for device, link in fleet.places:
            work, took = columns(fleet.network, style), fleet.took(device, link)
            for point, each in enumerate(took):
                for row in measured(rng, style, each):
                    start = [f"device{device}", f"network{link}", f"p{point}"]
                    writer.writerow([*start, *work[point], *row])
    layers, types, links = len(fleet.network.macs), len(fleet.fronts), len(fleet.links)
    return f"{layers} layers, {types} device types, {links} networks, {style}", style


def draw_fleet(rng: np.random.Generator) -> Fleet:
    network, whole_ms = draw_network(rng), 10 ** rng.uniform(0.5, 4.0)  # on devices, about
    unequal = rng.choice([0.1, 0.3, 0.8])  # how differently a machine takes to kinds of layers
    server = layers_ms(rng, network, whole_ms / 10 ** rng.uniform(0.3, 2.0), unequal)
    back = np.append(server[::-1].cumsum()[::-1] + rng.uniform(0.2, 8.0), 0.0)
    fronts, links = [], []
    for _ in range(rng.integers(1, 6)):
        device = layers_ms(rng, network, whole_ms * 10 ** rng.uniform(-0.5, 0.5), unequal)
        fronts.append(np.append(0.0, device.cumsum()))
    for _ in range(rng.integers(1, 4)):
        per_byte = whole_ms * 10 ** rng.uniform(-1.5, 0.7) / network.sizes[0]
        sent = network.sizes * per_byte * (1.0 + 2.0 * SEGMENT / (network.sizes + SEGMENT))
        links.append(np.where(network.sizes > 0.0, rng.uniform(0.3, 60.0) + sent, 0.0))
    places = [(device, link) for device in range(len(fronts)) for link in range(len(links))]
    chosen = rng.permutation(len(places))[:MOST_PLACES]
    return Fleet(network, fronts, links, back, [places[each] for each in chosen])


def draw_network(rng: np.random.Generator) -> Network:
    layers, sent = int(rng.integers(4, 40)), 10 ** rng.uniform(3.5, 6.3)
    depth = np.linspace(0.0, 1.0, layers)
    shape = rng.choice(["shrinks", "flat", "narrow in the middle", "grows"])
    if shape == "shrinks":
        sizes = rng.uniform(0.5, 6.0) * np.exp(-rng.uniform(2.0, 6.0) * depth)
        sizes = sizes * np.exp(rng.normal(0.0, 0.4, layers))
    elif shape == "flat":
        sizes = np.full(layers, rng.uniform(0.3, 3.0))
    elif shape == "narrow in the middle":
        sizes = 0.05 + rng.uniform(0.5, 2.0) * (2.0 * depth - 1.0) ** 2
    else:
        sizes = 0.3 + rng.uniform(0.7, 3.7) * depth
    sizes = np.floor(np.maximum(np.append(1.0, sizes) * sent, 4.0))
    sizes[-1] = 0.0
    kind = rng.choice(len(KINDS), layers, p=SHARES)
    macs = 10 ** rng.uniform(5.5, 9.0, layers) * np.where(kind == KINDS.index("other"), 0.01, 1.0)
    return Network(sizes, macs, kind)


def draw_style(rng: np.random.Generator) -> Style:
    return Style(
        noise=float(rng.choice([0.02, 0.05, 0.1, 0.25])),
        outliers=float(rng.choice([0.0, 0.0, 0.0, 0.01, 0.03])),
        samples=int(rng.choice([1, 3, 10, 50])),
        averaged=bool(rng.random() < 0.5),
        digits=int(rng.choice([4, 4, 1, 0])),
        by_kind=bool(rng.random() < 0.3),
    )


def layers_ms(rng: np.random.Generator, network: Network, whole_ms: float, unequal: float) -> Array:
    """(layers,) milliseconds of a machine that computes layers by their work, or by what they read
    and write if that takes longer; `whole_ms` if all of them were limited by their work."""
    effort = network.macs * np.exp(rng.normal(0.0, unequal, len(KINDS)))[network.kind]
    traffic = network.sizes[:-1] + network.sizes[1:]
    memory_ms = whole_ms * 10 ** rng.uniform(-1.5, 0.5)
    took = np.maximum(whole_ms * effort / effort.sum(), memory_ms * traffic / traffic.sum())
    result: Array = took + rng.uniform(0.0, LAUNCH_MS)
    return result


def header(style: Style) -> list[str]:
    own = [f"{side}:{kind}" for side in ("front", "server") for kind in KINDS]
    return [
        *("device_type", "network", "point", "bytes", "front_macs", "back_macs"),
        *(own if style.by_kind else ()),
        *("front_ms", "link_ms", "server_ms"),
    ]


def columns(network: Network, style: Style) -> list[list[int]]:
    """Bytes and work of every point."""
    by_kind = np.where(network.kind[:, None] == np.arange(len(KINDS)), network.macs[:, None], 0.0)
    done = np.vstack([np.zeros(len(KINDS)), by_kind.cumsum(axis=0)])
    left = done[-1] - done
    left[-1] = 0.0
    return [
        [int(size), int(before.sum()), int(after.sum())]
        + ([*before.astype(int).tolist(), *after.astype(int).tolist()] if style.by_kind else [])
        for size, before, after in zip(network.sizes, done, left, strict=True)
    ]


def measured(rng: np.random.Generator, style: Style, took: Array) -> list[list[str]]:
    """The rows of a point: front-end, link and server, as measured and written."""
    number = AVERAGED if style.averaged else style.samples
    shares = np.exp(rng.normal(0.0, style.noise, (number, 3)))
    far = rng.random((number, 3)) < style.outliers
    rows = took * shares * np.where(far, rng.uniform(2.0, 10.0, (number, 3)), 1.0)
    if style.averaged:
        rows = rows.mean(axis=0, keepdims=True)
    return [[f"{each:.{style.digits}f}" for each in row] for row in rows]
