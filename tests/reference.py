"""The paper's algorithms, line by line, dense and slow; nothing is shared with the code.

`fedlinucb_dw` is Algorithms 1 and 2 of the paper (section IV-B); without offline experience it is
the ablation FedLinUCB-Decouple. `fedlinucb` is the joint baseline (He et al. 2022, as section V-A
uses it), `linucb` the joint baseline that shares nothing, `linucb_warmstart` the decoupled ablation
that shares nothing. Line numbers are those of the algorithm boxes. Each takes

    x_f, x_b     features of every partition point, front-end and back-end (section IV-A)
    active       m_t of every round
    measure      (t, p) -> (l_f, l_b), what inference at point p takes in round t
    offline      for each device a list of (p, l_f), or an empty list

and returns the points picked and, for each round, how many uploads it made.
"""

from __future__ import annotations

import numpy as np
from numpy.linalg import det, inv


def argmin(scores):
    """Line 4's arg min; scores within 1e-9 of the best are a tie, which the lowest index wins."""
    best = min(scores)
    for p, score in enumerate(scores):
        if score <= best + 1e-9 * abs(best):
            return p
    raise AssertionError("no score is the lowest")


def norm(x, sigma):
    """|x| in the norm of Sigma^-1, below Eq. 3."""
    return np.sqrt(x @ inv(sigma) @ x)


def fedlinucb_dw(x_f, x_b, group_of, active, measure, offline, ridge, alpha, beta):
    points, d_f, d_b = len(x_f), x_f.shape[1], x_b.shape[1]
    devices = range(len(group_of))  # line 1: groups are known from the device types
    # line 2
    server_sigma_f = {k: ridge * np.eye(d_f) for k in set(group_of)}
    server_b_f = {k: np.zeros(d_f) for k in set(group_of)}
    for n in devices:
        for p, latency in offline[n]:
            server_sigma_f[group_of[n]] = server_sigma_f[group_of[n]] + np.outer(x_f[p], x_f[p])
            server_b_f[group_of[n]] = server_b_f[group_of[n]] + latency * x_f[p]
    server_sigma_b, server_b_b = ridge * np.eye(d_b), np.zeros(d_b)
    sigma_f = [server_sigma_f[group_of[m]] for m in devices]
    b_f = [server_b_f[group_of[m]] for m in devices]
    sigma_b, b_b = [server_sigma_b for _ in devices], [server_b_b for _ in devices]
    local_sigma_f = [np.zeros((d_f, d_f)) for _ in devices]
    local_b_f = [np.zeros(d_f) for _ in devices]
    local_sigma_b = [np.zeros((d_b, d_b)) for _ in devices]
    local_b_b = [np.zeros(d_b) for _ in devices]
    theta_f = [inv(sigma_f[m]) @ b_f[m] for m in devices]
    theta_b = [np.zeros(d_b) for _ in devices]
    picks, uploads = [], []
    for t, m in enumerate(active):  # line 3
        # line 4, Eq. 3
        scores = [
            theta_f[m] @ x_f[p]
            - beta * norm(x_f[p], sigma_f[m])
            + theta_b[m] @ x_b[p]
            - beta * norm(x_b[p], sigma_b[m])
            for p in range(points)
        ]
        p = argmin(scores)
        l_f, l_b = measure(t, p)  # line 5
        picks.append(p)
        uploads.append(0)
        # lines 6-15 for i = f
        local_sigma_f[m] = local_sigma_f[m] + np.outer(x_f[p], x_f[p])  # line 7
        local_b_f[m] = local_b_f[m] + l_f * x_f[p]
        if det(sigma_f[m] + local_sigma_f[m]) / det(sigma_f[m]) > 1 + alpha:  # line 8
            k = group_of[m]  # lines 9-10: Algorithm 2
            server_sigma_f[k] = server_sigma_f[k] + local_sigma_f[m]  # Alg. 2 line 3
            server_b_f[k] = server_b_f[k] + local_b_f[m]
            sigma_f[m], b_f[m] = server_sigma_f[k], server_b_f[k]  # Alg. 2 lines 4-5
            local_sigma_f[m], local_b_f[m] = np.zeros((d_f, d_f)), np.zeros(d_f)  # line 11
            theta_f[m] = inv(sigma_f[m]) @ b_f[m]  # line 12
            uploads[-1] += 1
        # lines 6-15 for i = b
        local_sigma_b[m] = local_sigma_b[m] + np.outer(x_b[p], x_b[p])  # line 7
        local_b_b[m] = local_b_b[m] + l_b * x_b[p]
        if det(sigma_b[m] + local_sigma_b[m]) / det(sigma_b[m]) > 1 + alpha:  # line 8
            server_sigma_b = server_sigma_b + local_sigma_b[m]  # Alg. 2 line 7
            server_b_b = server_b_b + local_b_b[m]
            sigma_b[m], b_b[m] = server_sigma_b, server_b_b  # Alg. 2 lines 8-9
            local_sigma_b[m], local_b_b[m] = np.zeros((d_b, d_b)), np.zeros(d_b)  # line 11
            theta_b[m] = inv(sigma_b[m]) @ b_b[m]  # line 12
            uploads[-1] += 1
        # lines 13-14 and 17-19: everyone else, and everything else, stays as it is
    return picks, uploads


def fedlinucb(x_f, x_b, active, measure, devices, ridge, alpha, beta):
    x = np.hstack([x_f, x_b])
    d = x.shape[1]
    server_sigma, server_b = ridge * np.eye(d), np.zeros(d)
    sigma, b = [server_sigma] * devices, [server_b] * devices
    local_sigma, local_b = [np.zeros((d, d))] * devices, [np.zeros(d)] * devices
    picks, uploads = [], []
    for t, m in enumerate(active):
        theta = inv(sigma[m]) @ b[m]
        p = argmin([theta @ row - beta * norm(row, sigma[m]) for row in x])
        latency = sum(measure(t, p))
        picks.append(p)
        uploads.append(0)
        local_sigma[m] = local_sigma[m] + np.outer(x[p], x[p])
        local_b[m] = local_b[m] + latency * x[p]
        if det(sigma[m] + local_sigma[m]) / det(sigma[m]) > 1 + alpha:
            server_sigma, server_b = server_sigma + local_sigma[m], server_b + local_b[m]
            sigma[m], b[m] = server_sigma, server_b
            local_sigma[m], local_b[m] = np.zeros((d, d)), np.zeros(d)
            uploads[-1] = 1
    return picks, uploads


def linucb(x_f, x_b, active, measure, offline, ridge, beta):
    """Abbasi-Yadkori et al. 2011, one learner per device; offline runs have x = [x_f, 0]."""
    x = np.hstack([x_f, x_b])
    d = x.shape[1]
    sigma, b = [ridge * np.eye(d) for _ in offline], [np.zeros(d) for _ in offline]
    for m, runs in enumerate(offline):
        for p, latency in runs:
            row = np.hstack([x_f[p], np.zeros(x_b.shape[1])])
            sigma[m], b[m] = sigma[m] + np.outer(row, row), b[m] + latency * row
    picks = []
    for t, m in enumerate(active):
        theta = inv(sigma[m]) @ b[m]
        p = argmin([theta @ row - beta * norm(row, sigma[m]) for row in x])
        latency = sum(measure(t, p))
        picks.append(p)
        sigma[m], b[m] = sigma[m] + np.outer(x[p], x[p]), b[m] + latency * x[p]
    return picks, [0] * len(picks)


def linucb_warmstart(x_f, x_b, active, measure, offline, ridge, beta):
    """Front-end and back-end apart, nothing shared (section V-C)."""
    sigma_f = [ridge * np.eye(x_f.shape[1]) for _ in offline]
    sigma_b = [ridge * np.eye(x_b.shape[1]) for _ in offline]
    b_f, b_b = [np.zeros(x_f.shape[1]) for _ in offline], [np.zeros(x_b.shape[1]) for _ in offline]
    for m, runs in enumerate(offline):
        for p, latency in runs:
            sigma_f[m], b_f[m] = sigma_f[m] + np.outer(x_f[p], x_f[p]), b_f[m] + latency * x_f[p]
    picks = []
    for t, m in enumerate(active):
        theta_f, theta_b = inv(sigma_f[m]) @ b_f[m], inv(sigma_b[m]) @ b_b[m]
        scores = [
            theta_f @ x_f[p]
            - beta * norm(x_f[p], sigma_f[m])
            + theta_b @ x_b[p]
            - beta * norm(x_b[p], sigma_b[m])
            for p in range(len(x_f))
        ]
        p = argmin(scores)
        l_f, l_b = measure(t, p)
        picks.append(p)
        sigma_f[m], b_f[m] = sigma_f[m] + np.outer(x_f[p], x_f[p]), b_f[m] + l_f * x_f[p]
        sigma_b[m], b_b[m] = sigma_b[m] + np.outer(x_b[p], x_b[p]), b_b[m] + l_b * x_b[p]
    return picks, [0] * len(picks)
