"""HetoFedBandit and FCLUB once more, dense and slow, over lists of raw observations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.linalg import det, inv, lstsq, matrix_rank, norm

from reference import argmin


class Device:
    def __init__(self):
        self.seen = []  # everything observed, (x, y)
        self.told = 0  # how many of them the cluster was told
        self.heard = []  # what others' and its own told observations it estimates from
        self.at_last = []  # what it knew when it last heard

    @property
    def known(self):
        return self.heard + self.seen[self.told :]


def gram(observed, d, ridge=0.0):
    return ridge * np.eye(d) + sum((np.outer(x, x) for x, _ in observed), np.zeros((d, d)))


def moment(observed, d):
    return sum((y * x for x, y in observed), np.zeros(d))


def chosen(device, rows, ridge, beta):
    d = rows.shape[1]
    inverse = inv(gram(device.known, d, ridge))
    theta = inverse @ moment(device.known, d)
    return argmin([x @ theta - beta * np.sqrt(x @ inverse @ x) for x in rows])


def synchronise(devices, members):
    for m in members:
        devices[m].told = len(devices[m].seen)
    everything = [pair for m in members for pair in devices[m].seen]
    for m in members:
        devices[m].heard = devices[m].at_last = list(everything)


def hetofedbandit(rows, active, count, measure, variance, quantile, ridge, threshold, beta):
    d = rows.shape[1]
    devices = [Device() for _ in range(count)]
    spread = [0.0] * count
    edges, queue, picks, uploads = set(), [], [], []
    for t, m in enumerate(active):
        p = chosen(devices[m], rows, ridge, beta)
        picks.append(p)
        devices[m].seen.append((rows[p], measure(t, p)))
        spread[m] += variance(m, p)
        before = det(gram(devices[m].at_last, d, ridge))
        grown = np.log(det(gram(devices[m].known, d, ridge)) / before)
        if grown * (len(devices[m].seen) - devices[m].told) >= threshold:
            for o in set(range(count)) - {m}:
                pair = frozenset((m, o))
                edges.discard(pair)
                if same(devices[m].seen, devices[o].seen, spread[m] + spread[o], d, quantile):
                    edges.add(pair)
            queue += [c for c in cliques_of(m, edges, count) if c not in queue]
        uploads.append(len(queue[0]) if queue else 0)
        if queue:
            synchronise(devices, queue.pop(0))
    return picks, uploads


def same(one, other, spread, d, quantile):
    if not one or not other:
        return True

    def fit(observed):
        x, y = (np.array(each) for each in zip(*observed, strict=True))
        return x, lstsq(x, y, rcond=1e-7)[0], matrix_rank(x, tol=1e-6)

    common = fit(one + other)
    x1, theta1, rank1 = fit(one)
    x2, theta2, rank2 = fit(other)
    freedom = rank1 + rank2 - common[2]
    if freedom <= 0:
        return True
    statistic = norm(x1 @ (theta1 - common[1])) ** 2 + norm(x2 @ (theta2 - common[1])) ** 2
    return statistic <= quantile(freedom) * spread / (len(one) + len(other))


def cliques_of(m, edges, count):
    """Every maximal clique with m, by looking at every set of devices."""

    def clique(members):
        return all(frozenset(pair) in edges for pair in combinations(members, 2))

    others = [o for o in range(count) if o != m]
    sets = [
        tuple(sorted((m, *chosen)))
        for size in range(count)
        for chosen in combinations(others, size)
        if clique((m, *chosen))
    ]
    return sorted(s for s in sets if not any(set(s) < set(bigger) for bigger in sets))


def fclub(rows, active, count, measure, scale, cut, ridge, alpha, beta):
    d = rows.shape[1]
    devices = [Device() for _ in range(count)]
    edges = {frozenset(pair) for pair in combinations(range(count), 2)}
    clusters = [set(range(count))]
    phase_end, picks, uploads = 1, [], []

    def theta(m):
        return inv(gram(devices[m].seen, d, ridge)) @ moment(devices[m].seen, d)

    def doubt(m):
        n = len(devices[m].seen)
        return np.sqrt((1 + np.log(1 + n)) / (1 + n))

    for t, m in enumerate(active):
        p = chosen(devices[m], rows, ridge, beta)
        picks.append(p)
        devices[m].seen.append((rows[p], measure(t, p)))
        last = det(gram(devices[m].at_last, d, ridge))
        if t + 1 == phase_end:
            phase_end *= 2
            for i, j in combinations(range(count), 2):
                met = devices[i].seen and devices[j].seen
                if met and norm(theta(i) - theta(j)) > scale * cut * (doubt(i) + doubt(j)):
                    edges.discard(frozenset((i, j)))
            clusters = components(edges, count)
            for cluster in clusters:
                synchronise(devices, sorted(cluster))
            uploads.append(count)
        elif det(gram(devices[m].known, d, ridge)) > (1 + alpha) * last:
            devices[m].told = len(devices[m].seen)
            (cluster,) = [each for each in clusters if m in each]
            told = [pair for o in sorted(cluster) for pair in devices[o].seen[: devices[o].told]]
            heard = 0
            for o in sorted(cluster):
                fresh = told + devices[o].seen[devices[o].told :]
                before = det(gram(devices[o].at_last, d, ridge))
                if o == m or det(gram(fresh, d, ridge)) > (1 + alpha) * before:
                    devices[o].heard, devices[o].at_last = list(told), list(fresh)
                    heard += 1
            uploads.append(heard)
        else:
            uploads.append(0)
    return picks, uploads


def components(edges, count):
    left, found = set(range(count)), []
    while left:
        group = {min(left)}
        while True:
            more = {o for e in edges for o in e if e & group} | group
            if more == group:
                break
            group = more
        found.append(group)
        left -= group
    return found
