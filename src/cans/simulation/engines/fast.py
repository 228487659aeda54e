"""A whole run over arrays, in the subset of NumPy that numba compiles.

`play` is the simulator's round loop for a fleet held in arrays. It contains no learning: every
formula is a call into `cans.learning`, the same functions that `DeviceLearner` and `EdgeAggregator`
call. `compiled.py` jits all of them; without numba `play` runs as plain Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cans.learning.arrays import Array, BoolArray, IntArray, LearnerState, PoolState
from cans.learning.linear import (
    LARGE,
    accumulate,
    acknowledged,
    adopt,
    estimate,
    lowest,
    must_not_stay_local,
    optimistic,
    refine,
    sampled,
    snapshot,
    wants_fleet_sync,
    wants_upload,
)
from cans.learning.physical import credit, learn, merge, physical_scores, refresh
from cans.simulation.worlds.episode import Episode

CHOOSE_OPTIMISTIC, CHOOSE_SAMPLED, CHOOSE_UNIFORM, CHOOSE_LOCAL, CHOOSE_OFFLOAD = range(5)


class Truth(NamedTuple):
    """A world, as arrays; the fields are those of `World`."""

    place_of: IntArray
    front_ms: Array
    link_ms: Array
    link_fixed_ms: Array
    server_ms: Array
    probe_ms: Array
    has_front: BoolArray  # (choices,) False at the raw input: nothing runs on the device
    allowed: BoolArray
    restricted: bool  # some choice is not allowed somewhere
    report: Array
    samples: Array
    sample_count: IntArray


class Rules(NamedTuple):
    """A policy's switches, as numbers."""

    parts: int  # how many of the part states are in use
    choose: int
    knows: Array  # (3,) 1.0 for each segment that is known beforehand
    truth: bool  # what is known is this round's truth
    forced_sampling: bool
    key_frame_weight: Array  # (2,) exploration on other frames and on key frames
    fleet_threshold: float  # > 0: a trigger synchronises everyone
    immediate: bool  # uploads go out at once; otherwise with the next offloaded round
    fresh: bool  # pools are adopted before a choice, not after an upload
    pool_age: float  # ... if the last adoption is at least so many rounds ago
    watched: BoolArray  # (parts,)
    probe_after: float
    probe_at_zero: Array  # statistics of observing a probe: `contributions` of its features
    probe_per_ms: Array
    link_part: int  # -1: none


class Record(NamedTuple):
    """What is written down of every round."""

    active: IntArray
    picks: IntArray
    regret_ms: Array
    expected_ms: Array  # of the choice, before noise
    latency_ms: Array
    error_ms: Array
    uploads: IntArray  # (rounds,) how many parts were uploaded
    part_uploads: IntArray  # (parts,)
    part_downloads: IntArray  # (parts,)
    probes: IntArray  # (1,)
    ties: IntArray  # (1,)


def deliver(
    state: LearnerState,
    pools: PoolState,
    pool: int,
    device: int,
    part: int,
    time: float,
    epoch: int,
    watched: bool,
) -> None:
    """An upload, made for an `epoch`, reaches the server, which merges it or, if that epoch has
    ended, retires it."""
    if epoch == pools.epoch[pool, part]:
        size = state.physics.dimension[part] if watched else 0
        sent = state.sent[device, part]
        merge(pools, pool, part, sent, time, state.ridge, watched, size)
    acknowledged(state, device, part)


def take_in(
    state: LearnerState, pools: PoolState, pool: int, device: int, part: int, waiting: bool
) -> None:
    """A download reaches the device."""
    if pools.epoch[pool, part] > state.epoch[device, part]:
        state.epoch[device, part] = pools.epoch[pool, part]
        state.local[device, part] = 0.0
        if waiting:
            state.local[device, part] = state.sent[device, part]
        if state.physics.used:
            state.physics.own[device, part] = 0.0
            state.physics.pace[device, part] = 1.0
    adopt(state, device, part, pools.statistics[pool, part], pools.time[pool, part])


def enrol(
    state: LearnerState,
    pools: PoolState,
    pool_of: IntArray,
    part: int,
    offline_at_zero: Array,
    offline_per_ms: Array,
    offline_choice: IntArray,
    offline_ms: Array,
    watched: bool,
) -> None:
    """Alg. 1 line 2: every device joins a part with its offline runs; then all adopt their pool."""
    devices, runs = offline_choice.shape
    for device in range(devices):
        for run in range(runs):
            choice = offline_choice[device, run]
            at_zero, per_ms = offline_at_zero[choice], offline_per_ms[choice]
            if state.physics.used:
                learn(state, device, part, at_zero, per_ms, offline_ms[device, run])
            else:
                accumulate(state.local[device, part], at_zero, per_ms, offline_ms[device, run])
        if pool_of[device, part] >= 0:
            snapshot(state, device, part)
            deliver(state, pools, pool_of[device, part], device, part, 0.0, 0, watched)
    for device in range(devices):
        if pool_of[device, part] >= 0:
            take_in(state, pools, pool_of[device, part], device, part, False)
        else:
            estimate(state, device, part)


def nth_allowed(allowed: BoolArray, n: int) -> int:
    """The choice that is the n-th allowed one."""
    for choice in range(allowed.shape[0]):
        if allowed[choice]:
            if n == 0:
                return choice
            n -= 1
    return int(allowed.shape[0] - 1)


def measure(truth: Truth, episode: Episode, t: int, pick: int, local: int, latency: Array) -> None:
    """Expected latencies become measured ones; a segment that does not take place takes 0 ms."""
    for segment in range(3):
        takes_place = truth.has_front[pick] if segment == 0 else pick != local
        if takes_place:
            measured = latency[segment] * episode.factor[t, segment] + episode.shift[t, segment]
            latency[segment] = max(measured, 0.0) if episode.clip else measured
        else:
            latency[segment] = 0.0


def play(
    state: LearnerState,
    pools: PoolState,
    pool_of: IntArray,
    explains: Array,
    rules: Rules,
    truth: Truth,
    episode: Episode,
    record: Record,
) -> None:
    """Play an episode: select, measure, observe, exchange, record; round after round."""
    choices = truth.front_ms.shape[1]
    local = choices - 1
    devices = truth.place_of.shape[0]
    parts = state.rows.shape[0]
    frames = np.zeros(devices, dtype=np.int64)
    waiting = np.zeros((devices, parts), dtype=np.bool_)
    refreshed = np.full(devices, -np.inf)
    seen = np.zeros((devices, parts), dtype=np.int64)
    made_for = np.zeros((devices, parts), dtype=np.int64)  # epoch of the upload that is waiting
    latency = np.zeros(3)
    for t in range(episode.active.shape[0]):
        device = episode.active[t]
        time = float(t)
        record.active[t] = device
        frames[device] += 1
        place = truth.place_of[device]
        allowed = truth.allowed[place]
        front, link, server = truth.front_ms[place], truth.link_ms[place], truth.server_ms[place]
        scale = episode.scale[t]
        expected = front * scale[0] + truth.link_fixed_ms + link * scale[1] + server * scale[2]

        # --- pull before select
        if rules.fresh and time - refreshed[device] >= rules.pool_age:
            refreshed[device] = time
            for part in range(rules.parts):
                pool = pool_of[device, part]
                if pools.round[pool, part] != seen[device, part]:
                    seen[device, part] = pools.round[pool, part]
                    take_in(state, pools, pool, device, part, waiting[device, part])
                    record.part_downloads[part] += 1

        # --- select (Alg. 1 line 4)
        if rules.choose == CHOOSE_LOCAL:
            pick = nth_allowed(allowed, allowed.sum() - 1)
        elif rules.choose == CHOOSE_OFFLOAD:
            pick = nth_allowed(allowed, 0)
        elif rules.choose == CHOOSE_UNIFORM:
            pick = nth_allowed(allowed, int(episode.uniform[t] * allowed.sum()))
        else:
            known = expected
            if not rules.truth:
                known = (
                    rules.knows[0] * front
                    + rules.knows[1] * (truth.link_fixed_ms + link)
                    + rules.knows[2] * server
                )
            scores = known
            if rules.choose == CHOOSE_SAMPLED:
                scores = known + sampled(state, device, episode.normals[t])
            elif state.physics.used:
                refresh(state, device)
                scores = known + physical_scores(state, device)
            elif rules.parts > 0:
                weight = rules.key_frame_weight[1 if episode.key_frame[t] else 0]
                mean, norm, radius = state.mean[device], state.norm[device], state.radius[device]
                scores = known + optimistic(mean, norm, radius, weight)
            if truth.restricted:
                scores = np.where(allowed, np.minimum(scores, LARGE), np.inf)
            forced = rules.forced_sampling and must_not_stay_local(frames[device])
            if forced and allowed[:local].any():
                scores[local] = np.inf
            pick, tied = lowest(scores)
            record.ties[0] += tied
            predicted = known[pick]
            for part in range(rules.parts):
                predicted += state.mean[device, part, pick]
            record.error_ms[t] = abs(predicted - expected[pick])
        record.picks[t] = pick
        record.expected_ms[t] = expected[pick]
        best = expected.min()
        if truth.restricted:
            best = np.where(allowed, expected, np.inf).min()
        record.regret_ms[t] = expected[pick] - best

        # --- a waiting upload travels with this round's request
        if not rules.immediate and pick != local:
            for part in range(rules.parts):
                if waiting[device, part]:
                    waiting[device, part] = False
                    pool = pool_of[device, part]
                    deliver(
                        state,
                        pools,
                        pool,
                        device,
                        part,
                        time,
                        made_for[device, part],
                        rules.watched[part],
                    )
                    take_in(state, pools, pool, device, part, False)
                    seen[device, part] = pools.round[pool, part]
                    record.uploads[t] += 1
                    record.part_uploads[part] += 1
                    record.part_downloads[part] += 1

        # --- measure (line 5)
        if truth.samples.shape[0] > 0:
            row = int(episode.draw[t] * truth.sample_count[place, pick])
            latency[:] = truth.samples[place, pick, row]
        else:
            latency[0] = front[pick] * scale[0]
            latency[1] = truth.link_fixed_ms[pick] + link[pick] * scale[1]
            latency[2] = server[pick] * scale[2]
            measure(truth, episode, t, pick, local, latency)
        record.latency_ms[t] = latency[0] + latency[1] + latency[2]
        latency *= truth.report[device]

        # --- observe (lines 7-9) and upload (lines 10-12, Alg. 2)
        for part in range(rules.parts):
            explained = 0.0
            for segment in range(3):
                explained += explains[part, segment] * latency[segment]
            if state.informative[part, pick]:
                at_zero, per_ms = state.sums_at_zero[part, pick], state.sums_per_ms[part, pick]
                if state.physics.used:
                    learn(state, device, part, at_zero, per_ms, explained)
                else:  # as `linear.observe`, but a call with the whole state costs a third more
                    if state.threshold[part] < np.inf:
                        state.gain[device, part] += state.norm[device, part, pick] ** 2
                    accumulate(state.local[device, part], at_zero, per_ms, explained)
                    if state.uses_local[part]:
                        refine(state, device, part, pick, explained)
            if rules.fleet_threshold > 0.0:
                if wants_fleet_sync(state, device, part, rules.fleet_threshold):
                    for other in range(devices):
                        snapshot(state, other, part)
                        deliver(state, pools, pool_of[other, part], other, part, time, 0, False)
                    for other in range(devices):
                        take_in(state, pools, pool_of[other, part], other, part, False)
                    record.uploads[t] += devices
                    record.part_uploads[part] += devices
                    record.part_downloads[part] += devices
                continue
            silent = time - state.synced_time[device, part]
            probed = part == rules.link_part and pick == local and silent > rules.probe_after
            if probed:
                record.probes[0] += 1
                ping = truth.probe_ms[place, 0] * scale[1] + truth.probe_ms[place, 1]
                ping = ping * episode.factor[t, 1] + episode.shift[t, 1]
                ping = max(ping, 0.0) if episode.clip else ping
                ping *= truth.report[device]
                at_zero, per_ms = rules.probe_at_zero, rules.probe_per_ms
                learn(state, device, part, at_zero, per_ms, ping)
            if probed or state.gain[device, part] > state.threshold[part]:
                if waiting[device, part] or not (probed or wants_upload(state, device, part)):
                    continue
                snapshot(state, device, part)
                if not rules.immediate:
                    waiting[device, part] = True
                    made_for[device, part] = state.epoch[device, part]
                    continue
                pool = pool_of[device, part]
                epoch = state.epoch[device, part]
                deliver(state, pools, pool, device, part, time, epoch, rules.watched[part])
                record.uploads[t] += 1
                record.part_uploads[part] += 1
                if not rules.fresh:
                    take_in(state, pools, pool, device, part, False)
                    record.part_downloads[part] += 1
                elif pools.epoch[pool, part] == state.epoch[device, part]:
                    credit(state, device, part, time)
