"""A whole run over arrays, in the subset of NumPy that numba compiles.

`play` is the simulator's round loop for a fleet held in arrays. It contains no learning: every
formula is a call into `cans.learning.arithmetic`, the same functions that `DeviceLearner` and
`EdgeAggregator` call. `compiled.py` jits both; without numba `play` runs as plain Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cans.learning.arithmetic import (
    accumulate,
    adopt,
    estimate,
    exchange,
    lowest,
    must_not_stay_local,
    observe,
    optimistic,
    sampled,
    snapshot,
    wants_fleet_sync,
    wants_upload,
)
from cans.learning.state import Array, BoolArray, IntArray, LearnerState
from cans.simulation.episode import Episode

CHOOSE_OPTIMISTIC, CHOOSE_SAMPLED, CHOOSE_UNIFORM, CHOOSE_LOCAL, CHOOSE_OFFLOAD = range(5)


class Truth(NamedTuple):
    """A world's expected milliseconds, as arrays."""

    type_of: IntArray
    network_of: IntArray
    front_ms: Array
    link_ms: Array
    link_fixed_ms: Array
    server_ms: Array
    has_front: BoolArray  # (choices,) False at the raw input: nothing runs on the device


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


class Record(NamedTuple):
    """What is written down of every round."""

    active: IntArray
    picks: IntArray
    regret_ms: Array
    latency_ms: Array
    error_ms: Array
    uploads: IntArray  # (rounds,) how many parts were exchanged
    part_uploads: IntArray  # (parts,)
    ties: IntArray  # (1,)


def enrol(
    state: LearnerState,
    pools: Array,
    pool_of: IntArray,
    part: int,
    offline_plain: Array,
    offline_slope: Array,
    offline_choice: IntArray,
    offline_ms: Array,
) -> None:
    """Alg. 1 line 2: every device joins a part with its offline runs; then all adopt their pool."""
    devices, runs = offline_choice.shape
    for device in range(devices):
        for run in range(runs):
            choice = offline_choice[device, run]
            plain, slope = offline_plain[choice], offline_slope[choice]
            accumulate(state.local[device, part], plain, slope, offline_ms[device, run])
        if pool_of[device, part] >= 0:
            pools[pool_of[device, part], part] += state.local[device, part]
            state.local[device, part] = 0.0
    for device in range(devices):
        if pool_of[device, part] >= 0:
            adopt(state, device, part, pools[pool_of[device, part], part])
        else:
            estimate(state, device, part)


def play(
    state: LearnerState,
    pools: Array,
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
    devices = truth.type_of.shape[0]
    frames = np.zeros(devices, dtype=np.int64)
    waiting = np.zeros((devices, state.rows.shape[0]), dtype=np.bool_)
    latency = np.zeros(3)
    for t in range(episode.active.shape[0]):
        device = episode.active[t]
        record.active[t] = device
        frames[device] += 1
        front = truth.front_ms[truth.type_of[device]]
        link = truth.link_ms[truth.network_of[device]]
        scale = episode.scale[t]
        expected = (
            front * scale[0] + truth.link_fixed_ms + link * scale[1] + truth.server_ms * scale[2]
        )

        # --- select (Alg. 1 line 4)
        if rules.choose == CHOOSE_LOCAL:
            pick = local
        elif rules.choose == CHOOSE_OFFLOAD:
            pick = 0
        elif rules.choose == CHOOSE_UNIFORM:
            pick = int(episode.uniform[t] * choices)
        else:
            known = expected
            if not rules.truth:
                known = (
                    rules.knows[0] * front
                    + rules.knows[1] * (truth.link_fixed_ms + link)
                    + rules.knows[2] * truth.server_ms
                )
            scores = known
            if rules.choose == CHOOSE_SAMPLED:
                scores = known + sampled(state, device, episode.normals[t])
            elif rules.parts > 0:
                weight = rules.key_frame_weight[1 if episode.key_frame[t] else 0]
                scores = known + optimistic(state, device, weight)
            if rules.forced_sampling and must_not_stay_local(frames[device]):
                scores[local] = np.inf
            pick, tied = lowest(scores)
            record.ties[0] += tied
            predicted = known[pick]
            for part in range(rules.parts):
                predicted += state.mean[device, part, pick]
            record.error_ms[t] = abs(predicted - expected[pick])
        record.picks[t] = pick
        record.regret_ms[t] = expected[pick] - expected.min()

        # --- a waiting upload travels with this round's request
        if not rules.immediate and pick != local:
            for part in range(rules.parts):
                if waiting[device, part]:
                    waiting[device, part] = False
                    exchange(state, device, part, pools[pool_of[device, part], part])
                    record.uploads[t] += 1
                    record.part_uploads[part] += 1

        # --- measure (line 5)
        latency[0] = front[pick] * scale[0]
        latency[1] = truth.link_fixed_ms[pick] + link[pick] * scale[1]
        latency[2] = truth.server_ms[pick] * scale[2]
        for segment in range(3):
            takes_place = truth.has_front[pick] if segment == 0 else pick != local
            if takes_place:
                measured = latency[segment] * episode.factor[t, segment]
                measured += episode.shift[t, segment]
                latency[segment] = max(measured, 0.0) if episode.clip else measured
            else:
                latency[segment] = 0.0
        record.latency_ms[t] = latency[0] + latency[1] + latency[2]

        # --- observe (lines 7-9) and exchange (lines 10-12, Alg. 2)
        for part in range(rules.parts):
            explained = 0.0
            for segment in range(3):
                explained += explains[part, segment] * latency[segment]
            if state.informative[part, pick]:
                observe(state, device, part, pick, explained)
            if rules.fleet_threshold > 0.0:
                if wants_fleet_sync(state, device, part, rules.fleet_threshold):
                    for other in range(devices):
                        snapshot(state, other, part)
                        exchange(state, other, part, pools[pool_of[other, part], part])
                    for other in range(devices):
                        adopt(state, other, part, pools[pool_of[other, part], part])
                    record.uploads[t] += devices
                    record.part_uploads[part] += devices
            elif state.gain[device, part] > state.threshold[part]:
                if waiting[device, part] or not wants_upload(state, device, part):
                    continue
                snapshot(state, device, part)
                if rules.immediate:
                    exchange(state, device, part, pools[pool_of[device, part], part])
                    record.uploads[t] += 1
                    record.part_uploads[part] += 1
                else:
                    waiting[device, part] = True
