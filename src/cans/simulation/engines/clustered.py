"""Clustered federated bandits, for comparison: who is alike is found from what everyone observes.

Both cluster the whole parameter of the joint model; every device estimates from the sums of its
cluster and from its own observations since. They need the whole fleet in one place, so that they
exist in simulation only.

- `hetofedbandit`, Blaser et al. 2024, in its data-dependent variant, which needs no exploration
  phase: a device whose determinant has grown is tested against every other one; each maximal clique
  of devices that may be alike joins a queue, and one clique is synchronised per round.
- `fclub`, Liu et al. 2022: a complete graph loses the edges between devices whose estimates are far
  apart; at the end of each phase, of doubling length, its components are the clusters.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, IntArray
from cans.learning.arithmetic.linear import lowest
from cans.learning.policies import Clusters, Hyperparameters, Policy
from cans.simulation.engines.arrays import new_record
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.engines.reference import expected_latency, measured_latency, place_at
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.world import Noise, World

SIGNIFICANCE = 0.01  # of the test that two devices differ (HetoFedBandit)
MOST_CLIQUES = 64  # of one device that are queued at once
CUT = 0.1  # FCLUB: alpha of the edge test, for parameters in units of the largest latency
SAME = 1e-9  # eigenvalues of a Gram matrix below this share of the largest are zero


class Sums:
    """Sigma and b of every device, and which share of them its cluster has been told."""

    def __init__(self, devices: int, dimension: int, ridge: float) -> None:
        self.ridge = ridge * np.eye(dimension)
        self.own_sigma = np.zeros((devices, dimension, dimension))
        self.own_b = np.zeros((devices, dimension))
        self.told_sigma = np.zeros_like(self.own_sigma)
        self.told_b = np.zeros_like(self.own_b)
        self.known_sigma = np.zeros_like(self.own_sigma)  # what a device estimates from
        self.known_b = np.zeros_like(self.own_b)
        self.count = np.zeros(devices, dtype=np.int64)
        self.since = np.zeros(devices, dtype=np.int64)  # observations since it last heard
        self.log_det = np.full(devices, self._log_det(self.known_sigma[0]))
        self.inverse = np.tile(np.linalg.inv(self.ridge), (devices, 1, 1))

    def observe(self, device: int, x: Array, latency: float) -> None:
        square = np.outer(x, x)
        for sigma in (self.own_sigma, self.known_sigma):
            sigma[device] += square
        for b in (self.own_b, self.known_b):
            b[device] += latency * x
        self.count[device] += 1
        self.since[device] += 1
        u = self.inverse[device] @ x
        self.inverse[device] -= np.outer(u, u) / (1.0 + x @ u)

    def growth(self, device: int) -> float:
        """How much log det has grown since the device last heard of its cluster."""
        return self._log_det(self.known_sigma[device]) - float(self.log_det[device])

    def tell(self, device: int) -> None:
        self.told_sigma[device] = self.own_sigma[device]
        self.told_b[device] = self.own_b[device]

    def hear(self, device: int, members: IntArray) -> None:
        """Estimate from all that the members have told, and from what this device has not."""
        self.known_sigma[device] = self._heard(device, members)
        buffered = self.own_b[device] - self.told_b[device]
        self.known_b[device] = self.told_b[members].sum(axis=0) + buffered
        self.log_det[device] = self._log_det(self.known_sigma[device])
        self.inverse[device] = np.linalg.inv(self.ridge + self.known_sigma[device])
        self.since[device] = 0

    def would_grow(self, device: int, members: IntArray) -> float:
        """How much log det would grow over that of the last time, if the device heard now."""
        return self._log_det(self._heard(device, members)) - float(self.log_det[device])

    def _heard(self, device: int, members: IntArray) -> Array:
        buffered = self.own_sigma[device] - self.told_sigma[device]
        heard: Array = self.told_sigma[members].sum(axis=0) + buffered
        return heard

    def _log_det(self, sigma: Array) -> float:
        return float(np.linalg.slogdet(self.ridge + sigma)[1])


class Cliques:
    """HetoFedBandit."""

    def __init__(self, sums: Sums, world: World, numbers: Hyperparameters) -> None:
        self.sums = sums
        self.threshold = numbers.fleet_threshold
        self.variance = _noise_variance(world)  # (devices, choices); the papers know it too
        self.observed = np.zeros(len(sums.count))  # Σ of the noise variance of what was picked
        self.alike = np.zeros((len(sums.count),) * 2, dtype=np.bool_)
        self.queue: list[tuple[int, ...]] = []

    def after(self, device: int, pick: int) -> int:
        """What the server does at the end of a round; returns how many devices synchronised."""
        self.observed[device] += self.variance[device, pick]
        if self.sums.growth(device) * self.sums.since[device] >= self.threshold:
            self._test(device)
            for clique in _cliques(self.alike, device):
                if clique not in self.queue:
                    self.queue.append(clique)
        if not self.queue:
            return 0
        members = np.array(self.queue.pop(0))
        for member in members:
            self.sums.tell(member)
        for member in members:
            self.sums.hear(member, members)
        return len(members)

    def _test(self, device: int) -> None:
        """Chi-square tests: do the observations of this device and of another one fit one
        parameter as well as two? What only one of them has seen says nothing."""
        sums = self.sums
        sigma, b = sums.own_sigma, sums.own_b
        alone, ranks = _solved(sigma, b)
        common, rank = _solved(sigma[device] + sigma, b[device] + b)
        freedom = ranks[device] + ranks - rank
        statistic = _squares(sigma[device], alone[device] - common)
        statistic += _squares(sigma, alone - common)
        variance = (self.observed[device] + self.observed) / np.maximum(
            sums.count[device] + sums.count, 1
        )
        alike = (freedom <= 0) | (statistic <= chi_square_quantile(freedom) * variance)
        alike[device] = False
        self.alike[device] = self.alike[:, device] = alike


class Components:
    """FCLUB, with one local server."""

    def __init__(self, sums: Sums, world: World, numbers: Hyperparameters) -> None:
        devices = len(sums.count)
        self.sums = sums
        self.grown = float(np.log1p(numbers.alpha))
        self.scale = float(_segments_ms(world).sum(axis=1).max())
        self.edges = ~np.eye(devices, dtype=np.bool_)
        self.cluster_of = np.zeros(devices, dtype=np.int64)
        self.round, self.phase_end = 0, 1

    def after(self, device: int, pick: int) -> int:
        """What the server does at the end of a round; returns how many devices synchronised."""
        self.round += 1
        if self.round == self.phase_end:
            self.phase_end *= 2
            return self._end_phase()
        if self.sums.growth(device) <= self.grown:
            return 0
        self.sums.tell(device)
        members = np.flatnonzero(self.cluster_of == self.cluster_of[device])
        heard = 0
        for member in members.tolist():
            if member == device or self.sums.would_grow(member, members) > self.grown:
                self.sums.hear(member, members)
                heard += 1
        return heard

    def _end_phase(self) -> int:
        sums = self.sums
        devices = len(sums.count)
        theta = np.zeros_like(sums.own_b)
        for device in range(devices):
            sums.tell(device)
            theta[device] = np.linalg.solve(sums.ridge + sums.own_sigma[device], sums.own_b[device])
        doubt = np.sqrt((1 + np.log1p(sums.count)) / (1 + sums.count))
        apart = np.linalg.norm(theta[:, None] - theta[None], axis=2) / self.scale
        seen = sums.count > 0
        cut = (apart > CUT * (doubt[:, None] + doubt[None])) & seen[:, None] & seen[None]
        self.edges &= ~cut
        self.cluster_of = _components(self.edges)
        for device in range(devices):
            sums.hear(device, np.flatnonzero(self.cluster_of == self.cluster_of[device]))
        return devices


def play(
    world: World, policy: Policy, numbers: Hyperparameters, beta_ms: float, episode: Episode
) -> Record:
    """Play an episode."""
    (part,) = policy.parts
    rows = world.table.columns(part.explains)
    sums = Sums(world.devices, rows.shape[1], numbers.ridge)
    kind = Cliques if policy.clusters is Clusters.CLIQUES else Components
    clusters = kind(sums, world, numbers)
    record = new_record(episode.rounds, 1)
    for t in range(episode.rounds):
        device = int(episode.active[t])
        expected = expected_latency(world, episode, t)
        total = expected.sum(axis=0)
        allowed = world.allowed[place_at(world, episode, t)]
        inverse = sums.inverse[device]
        mean = rows @ (inverse @ sums.known_b[device])
        norm = np.sqrt(np.abs(((rows @ inverse) * rows).sum(axis=1)))
        pick, tied = lowest(np.where(allowed, mean - beta_ms * norm, np.inf))
        latencies = measured_latency(world, episode, t, pick, expected[:, pick])
        sums.observe(device, rows[pick], sum(latencies) * float(world.report[device]))
        synchronised = clusters.after(device, pick)
        record.active[t], record.picks[t] = device, pick
        record.expected_ms[t] = total[pick]
        record.regret_ms[t] = total[pick] - total[allowed].min()
        record.latency_ms[t] = sum(latencies)
        record.error_ms[t] = abs(mean[pick] - total[pick])
        record.uploads[t] = synchronised
        record.ties[0] += tied
    record.part_uploads[0] = record.part_downloads[0] = record.uploads.sum()
    return record


def _segments_ms(world: World) -> Array:
    """(devices, segments, choices) expected milliseconds."""
    return np.array([world.segments_ms(device) for device in range(world.devices)])


def _noise_variance(world: World) -> Array:
    """(devices, choices) variance of a measured latency."""
    segments = _segments_ms(world)
    if world.noise is Noise.LOGNORMAL:
        variance: Array = world.noise_level**2 * np.square(segments).sum(axis=1)
        return variance
    return np.full_like(segments[:, 0], 2.0 * world.noise_level**2)


def _solved(sigma: Array, b: Array) -> tuple[Array, IntArray]:
    """Least squares without a ridge, and the ranks of what was observed; one row per device."""
    values, vectors = np.linalg.eigh(sigma)
    kept = values > SAME * np.maximum(values[:, -1:], 1e-300)
    along = np.einsum("nij,ni->nj", vectors, b) / np.where(kept, values, 1.0)
    return np.einsum("nij,nj->ni", vectors, along * kept), kept.sum(axis=1)


def _squares(sigma: Array, gap: Array) -> Array:
    """gap' Sigma gap, one row per device."""
    result: Array = ((gap[:, None] @ sigma)[:, 0] * gap).sum(axis=1)
    return result


def chi_square_quantile(freedom: IntArray) -> Array:
    """Upper quantile of chi-square at SIGNIFICANCE, by Wilson and Hilferty's cube."""
    at_least_one = np.maximum(freedom, 1)
    share = 2.0 / (9.0 * at_least_one)
    quantile: Array = at_least_one * (1.0 - share + NORMAL_QUANTILE * np.sqrt(share)) ** 3
    return quantile


NORMAL_QUANTILE = 2.326347874
"""Upper quantile of the standard normal distribution at SIGNIFICANCE."""


def _cliques(alike: BoolArray, device: int) -> list[tuple[int, ...]]:
    """The maximal cliques that a device belongs to (Bron and Kerbosch, with pivots)."""
    near = [set(np.flatnonzero(row).tolist()) for row in alike]
    found = []
    for clique in _extended(near, {device}, set(near[device]), set()):
        found.append(tuple(sorted(clique)))
        if len(found) == MOST_CLIQUES:
            break
    return sorted(found)


def _extended(
    near: list[set[int]], clique: set[int], open_: set[int], closed: set[int]
) -> Iterator[set[int]]:
    if not open_ and not closed:
        yield clique
        return
    pivot = max(open_ | closed, key=lambda each: len(near[each] & open_))
    for each in sorted(open_ - near[pivot]):
        yield from _extended(near, clique | {each}, open_ & near[each], closed & near[each])
        open_ = open_ - {each}
        closed = closed | {each}


def _components(edges: BoolArray) -> IntArray:
    """(devices,) the number of each device's connected component."""
    component = np.full(len(edges), -1, dtype=np.int64)
    number = 0
    for start in range(len(edges)):
        if component[start] >= 0:
            continue
        waiting = [start]
        while waiting:
            each = waiting.pop()
            if component[each] < 0:
                component[each] = number
                waiting += np.flatnonzero(edges[each]).tolist()
        number += 1
    return component
