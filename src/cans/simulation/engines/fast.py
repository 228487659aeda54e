"""A whole run over arrays, in the subset of NumPy that numba compiles.

`play` is the simulator's round loop for a fleet held in arrays: Algorithm 1, a step a line. It
contains no learning: every rule is a call into `cans.learning`, the same functions that
`DeviceLearner` and `EdgeAggregator` call. `compiled.py` jits all of them; without numba `play` runs
as plain Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, IntArray, LearnerState, PoolState
from cans.learning.arithmetic.choosing import (
    SAMPLED,
    choose_blindly,
    choose_lowest,
    learned_scores,
    must_not_stay_local,
)
from cans.learning.arithmetic.exchange import NEWS_BURST, NEWS_SECONDS, upload_is_due
from cans.learning.arithmetic.linear import accumulate, estimate, observe, wants_fleet_sync
from cans.learning.arithmetic.physical import learn, observe_physically
from cans.learning.arithmetic.pooling import acknowledge, confirm, merge, publish, send, take_in
from cans.simulation.worlds.episode import Episode


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
    explains: Array  # (parts, 3) 1.0 for each segment that a part explains
    probe_after: float
    probe_at_zero: Array  # (sizes, size) statistics of observing a probe: `contributions`
    probe_per_ms: Array
    probe_bytes: Array  # (sizes,) in units of the smallest
    link_part: int  # -1: none


class Traffic(NamedTuple):
    """What is on its way between devices and the server, and what each device was told."""

    pool_of: IntArray  # (devices, parts)  -1: keeps its observations to itself
    waiting: BoolArray  # (devices, parts)  an upload waits for the next request
    made_for: IntArray  # (devices, parts)  the epoch of that upload
    seen_epoch: IntArray  # (devices, parts)  the pool that a device was told of last: its epoch ...
    seen_round: IntArray  # (devices, parts)  ... round ...
    seen_edition: IntArray  # (devices, parts)  ... and edition
    frames: IntArray  # (devices,)  inferences so far
    refreshed: Array  # (devices,)  the round of the last pull
    tokens: Array  # (devices,)  for news that can wait: `exchange.Watcher`
    refilled: Array  # (devices,)


class Record(NamedTuple):
    """What is written down of every round."""

    active: IntArray
    picks: IntArray
    regret_ms: Array
    expected_ms: Array  # of the choice, before noise
    latency_ms: Array
    error_ms: Array
    uploads: IntArray  # (rounds,) how many parts were uploaded
    downloads: IntArray  # (rounds,) how many pools were sent to the device
    part_uploads: IntArray  # (parts,)
    part_downloads: IntArray  # (parts,)
    probes: IntArray  # (1,)
    ties: IntArray  # (1,)


# --- joining: Alg. 1 line 2 ----------------------------------------------------------------------


def enrol(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    part: int,
    offline_at_zero: Array,
    offline_per_ms: Array,
    offline_choice: IntArray,
    offline_ms: Array,
) -> None:
    """Every device joins a part with its offline runs; then all adopt their pool."""
    devices, runs = offline_choice.shape
    for device in range(devices):
        for run in range(runs):
            choice = offline_choice[device, run]
            at_zero, per_ms = offline_at_zero[choice], offline_per_ms[choice]
            experience(state, device, part, at_zero, per_ms, offline_ms[device, run])
        if traffic.pool_of[device, part] >= 0:
            send(state, device, part)
            deliver(state, pools, traffic, rules, device, part, state.epoch[device, part], 0.0)
            acknowledge(state, device, part)
    pools.told[:, part] = pools.statistics[:, part]
    for device in range(devices):
        if traffic.pool_of[device, part] >= 0:
            download(state, pools, traffic, device, part)
        elif not state.physics.used:
            estimate(state, device, part)


def experience(
    state: LearnerState, device: int, part: int, at_zero: Array, per_ms: Array, latency: float
) -> None:
    """An observation that is not of a choice: a partial local run, or a probe."""
    if state.physics.used:
        learn(state, device, part, at_zero, per_ms, latency)
    else:
        accumulate(state.local[device, part], at_zero, per_ms, latency)
    state.gain[device, part] = np.inf


def arrive(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    truth: Truth,
    episode: Episode,
    record: Record,
) -> None:
    """Every device times an exchange of each size, one device after the other."""
    part, sizes = rules.link_part, rules.probe_bytes.shape[0]
    if part < 0 or rules.probe_after == np.inf:
        return
    for device in range(truth.place_of.shape[0]):
        if rules.fresh:
            pull(state, pools, traffic, rules, device, record, 0)
        for size in range(sizes):
            factor, shift = (
                episode.arrival_factor[device, size],
                episode.arrival_shift[device, size],
            )
            milliseconds = probe_ms(truth, rules, episode, device, size, 1.0, factor, shift)
            at_zero, per_ms = rules.probe_at_zero[size], rules.probe_per_ms[size]
            experience(state, device, part, at_zero, per_ms, milliseconds)
        record.probes[0] += sizes
        if upload_is_due(state, device, part):
            upload(state, pools, traffic, rules, device, part, 0.0, record, 0)


# --- exchanging ----------------------------------------------------------------------------------


def deliver(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    device: int,
    part: int,
    epoch: int,
    time: float,
) -> None:
    """What a device has sent, made for an `epoch`, reaches the server (Alg. 2)."""
    pool, size = traffic.pool_of[device, part], state.dimension[part]
    sent = state.sent[device, part]
    merge(pools, pool, part, sent, epoch, time, state.ridge, rules.watched[part], size)
    if state.events[part]:
        publish(pools, pool, part, state.ridge, size)
        alone = pools.round[pool, part] == traffic.seen_round[device, part] + 1
        if alone and pools.epoch[pool, part] == traffic.seen_epoch[device, part]:
            see(pools, traffic, device, part)  # never told what it sent itself


def download(
    state: LearnerState, pools: PoolState, traffic: Traffic, device: int, part: int
) -> None:
    """A pool as it is now reaches a device (Alg. 1 lines 11-12)."""
    pool = traffic.pool_of[device, part]
    see(pools, traffic, device, part)
    epoch, round_, time = pools.epoch[pool, part], pools.round[pool, part], pools.time[pool, part]
    take_in(state, device, part, pools.statistics[pool, part], epoch, round_, time)


def see(pools: PoolState, traffic: Traffic, device: int, part: int) -> None:
    pool = traffic.pool_of[device, part]
    traffic.seen_epoch[device, part] = pools.epoch[pool, part]
    traffic.seen_round[device, part] = pools.round[pool, part]
    traffic.seen_edition[device, part] = pools.edition[pool, part]


def pull(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    device: int,
    record: Record,
    t: int,
) -> None:
    """Before a choice: whatever the server has to tell of this device's pools, as
    `exchange.Watcher` has it, whose clock counts the device's own inferences, one a second."""
    urgent = changed = False
    for part in range(rules.parts):
        pool = traffic.pool_of[device, part]
        if pool < 0 or not behind(pools, traffic, device, part):
            continue
        changed = True
        news = pools.edition[pool, part] > traffic.seen_edition[device, part]
        new_epoch = pools.epoch[pool, part] > traffic.seen_epoch[device, part]
        urgent = urgent or news or new_epoch or not state.events[part]
    earned = (traffic.frames[device] - traffic.refilled[device]) / NEWS_SECONDS
    traffic.tokens[device] = min(traffic.tokens[device] + earned, NEWS_BURST)
    traffic.refilled[device] = traffic.frames[device]
    if not urgent and (not changed or traffic.tokens[device] < 1.0):
        return
    if not urgent:
        traffic.tokens[device] -= 1.0
    for part in range(rules.parts):
        if traffic.pool_of[device, part] >= 0 and behind(pools, traffic, device, part):
            download(state, pools, traffic, device, part)
            record.part_downloads[part] += 1
            record.downloads[t] += 1


def behind(pools: PoolState, traffic: Traffic, device: int, part: int) -> bool:
    """Whether a pool is newer than what a device was told."""
    pool = traffic.pool_of[device, part]
    return bool(pools.round[pool, part] != traffic.seen_round[device, part])


def upload(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    device: int,
    part: int,
    time: float,
    record: Record,
    t: int,
) -> None:
    """Alg. 1 lines 9-12: send what was observed, and adopt the pool or keep to the copy of it."""
    send(state, device, part)
    if not rules.immediate:
        traffic.waiting[device, part] = True
        traffic.made_for[device, part] = state.epoch[device, part]
        return
    deliver(state, pools, traffic, rules, device, part, state.epoch[device, part], time)
    record.uploads[t] += 1
    record.part_uploads[part] += 1
    if rules.fresh:
        pool = traffic.pool_of[device, part]
        epoch, round_ = pools.epoch[pool, part], pools.round[pool, part]
        confirm(state, device, part, epoch, round_, pools.time[pool, part])
    else:
        acknowledge(state, device, part)
        download(state, pools, traffic, device, part)
        record.part_downloads[part] += 1
        record.downloads[t] += 1


def deliver_waiting(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    device: int,
    time: float,
    record: Record,
    t: int,
) -> None:
    """Uploads that waited travel with this round's request, and their pools come back with it."""
    for part in range(rules.parts):
        if traffic.waiting[device, part]:
            traffic.waiting[device, part] = False
            epoch = traffic.made_for[device, part]
            deliver(state, pools, traffic, rules, device, part, epoch, time)
            acknowledge(state, device, part)
            download(state, pools, traffic, device, part)
            record.uploads[t] += 1
            record.downloads[t] += 1
            record.part_uploads[part] += 1
            record.part_downloads[part] += 1


def synchronise(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    part: int,
    time: float,
    record: Record,
    t: int,
) -> None:
    """DisLinUCB: one trigger, and the whole fleet uploads, then downloads."""
    devices = traffic.frames.shape[0]
    for device in range(devices):
        send(state, device, part)
        deliver(state, pools, traffic, rules, device, part, state.epoch[device, part], time)
        acknowledge(state, device, part)
    for device in range(devices):
        download(state, pools, traffic, device, part)
    record.uploads[t] += devices
    record.downloads[t] += devices
    record.part_uploads[part] += devices
    record.part_downloads[part] += devices


# --- a round -------------------------------------------------------------------------------------


def select(
    state: LearnerState,
    rules: Rules,
    truth: Truth,
    episode: Episode,
    t: int,
    frame: int,
    expected: Array,
    record: Record,
) -> int:
    """Alg. 1 line 4."""
    device = episode.active[t]
    place = truth.place_of[device]
    allowed = truth.allowed[place]
    if rules.choose > SAMPLED:
        return choose_blindly(rules.choose, allowed, episode.uniform[t])
    known = expected
    if not rules.truth:
        known = (
            rules.knows[0] * truth.front_ms[place]
            + rules.knows[1] * (truth.link_fixed_ms + truth.link_ms[place])
            + rules.knows[2] * truth.server_ms[place]
        )
    scores = known
    if rules.parts > 0:
        weight = rules.key_frame_weight[1 if episode.key_frame[t] else 0]
        learned = learned_scores(state, device, rules.choose, weight, episode.normals[t])
        scores = known + learned
    forced = rules.forced_sampling and must_not_stay_local(frame)
    pick, tied = choose_lowest(scores, allowed, truth.restricted, forced)
    record.ties[0] += tied
    predicted = known[pick]
    for part in range(rules.parts):
        predicted += state.mean[device, part, pick]
    record.error_ms[t] = abs(predicted - expected[pick])
    return pick


def expected_ms(truth: Truth, episode: Episode, t: int) -> Array:
    """What every choice takes the active device in this round, before noise."""
    place, scale = truth.place_of[episode.active[t]], episode.scale[t]
    total: Array = (
        truth.front_ms[place] * scale[0]
        + truth.link_fixed_ms
        + truth.link_ms[place] * scale[1]
        + truth.server_ms[place] * scale[2]
    )
    return total


def note(truth: Truth, t: int, device: int, pick: int, expected: Array, record: Record) -> None:
    """Write down the choice and what it cost."""
    best = expected.min()
    if truth.restricted:
        best = np.where(truth.allowed[truth.place_of[device]], expected, np.inf).min()
    record.active[t] = device
    record.picks[t] = pick
    record.expected_ms[t] = expected[pick]
    record.regret_ms[t] = expected[pick] - best


def measure(truth: Truth, episode: Episode, t: int, pick: int, latency: Array) -> None:
    """Alg. 1 line 5: the three measured latencies; one that does not take place takes 0 ms."""
    place, scale = truth.place_of[episode.active[t]], episode.scale[t]
    if truth.samples.shape[0] > 0:
        row = int(episode.draw[t] * truth.sample_count[place, pick])
        latency[:] = truth.samples[place, pick, row] * scale
        return
    latency[0] = truth.front_ms[place, pick] * scale[0]
    latency[1] = truth.link_fixed_ms[pick] + truth.link_ms[place, pick] * scale[1]
    latency[2] = truth.server_ms[place, pick] * scale[2]
    offloads = pick != truth.front_ms.shape[1] - 1
    for segment in range(3):
        if truth.has_front[pick] if segment == 0 else offloads:
            factor, shift = episode.factor[t, segment], episode.shift[t, segment]
            latency[segment] = disturbed(latency[segment], factor, shift, episode.clip)
        else:
            latency[segment] = 0.0


def disturbed(expected: float, factor: float, shift: float, clip: bool) -> float:
    """An expected latency as it is measured."""
    measured = expected * factor + shift
    return max(measured, 0.0) if clip else measured


def probe_ms(
    truth: Truth,
    rules: Rules,
    episode: Episode,
    device: int,
    size: int,
    scale: float,
    factor: float,
    shift: float,
) -> float:
    """What a device reports of a timed exchange of the link."""
    stretched, fixed = truth.probe_ms[truth.place_of[device]]
    expected = stretched * rules.probe_bytes[size] * scale + fixed
    return float(disturbed(expected, factor, shift, episode.clip) * truth.report[device])


def probe(
    state: LearnerState,
    rules: Rules,
    truth: Truth,
    episode: Episode,
    t: int,
    record: Record,
) -> None:
    """A device that stays local and has not heard of the link for a while times a small exchange,
    disturbed as this round's link."""
    device, part = episode.active[t], rules.link_part
    if part < 0 or t - state.heard[device, part] <= rules.probe_after:
        return
    factor, shift = episode.factor[t, 1], episode.shift[t, 1]
    scale = episode.scale[t, 1]
    milliseconds = probe_ms(truth, rules, episode, device, 0, scale, factor, shift)
    at_zero, per_ms = rules.probe_at_zero[0], rules.probe_per_ms[0]
    experience(state, device, part, at_zero, per_ms, milliseconds)
    state.heard[device, part] = t
    record.probes[0] += 1


def play(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    truth: Truth,
    episode: Episode,
    record: Record,
) -> None:
    """Play an episode: select, measure, observe, exchange, record; round after round."""
    arrive(state, pools, traffic, rules, truth, episode, record)
    local = truth.front_ms.shape[1] - 1
    latency = np.zeros(3)
    for t in range(episode.active.shape[0]):
        device, time = episode.active[t], float(t)
        traffic.frames[device] += 1
        expected = expected_ms(truth, episode, t)
        if rules.fresh and time - traffic.refreshed[device] >= rules.pool_age:
            traffic.refreshed[device] = time
            pull(state, pools, traffic, rules, device, record, t)
        frame = traffic.frames[device]
        pick = select(state, rules, truth, episode, t, frame, expected, record)  # line 4
        note(truth, t, device, pick, expected, record)
        if not rules.immediate and pick != local:
            deliver_waiting(state, pools, traffic, rules, device, time, record, t)
        measure(truth, episode, t, pick, latency)  # line 5
        record.latency_ms[t] = latency[0] + latency[1] + latency[2]
        latency *= truth.report[device]
        for part in range(rules.parts):  # lines 6-9
            if state.informative[part, pick]:
                explained = (rules.explains[part] * latency).sum()
                state.heard[device, part] = max(time, state.heard[device, part])
                if state.physics.used:
                    observe_physically(state, device, part, pick, explained)
                else:
                    observe(state, device, part, pick, explained)
        if pick == local:
            probe(state, rules, truth, episode, t, record)
        for part in range(rules.parts):  # lines 9-15
            if rules.fleet_threshold > 0.0:
                if wants_fleet_sync(state, device, part, rules.fleet_threshold):
                    synchronise(state, pools, traffic, rules, part, time, record, t)
            elif traffic.pool_of[device, part] < 0 or traffic.waiting[device, part]:
                continue
            elif upload_is_due(state, device, part):
                upload(state, pools, traffic, rules, device, part, time, record, t)
