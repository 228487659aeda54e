"""A whole run over arrays, in the subset of NumPy that numba compiles.

`play` is the simulator's round loop for a fleet held in arrays: Algorithm 1, a step a line. It
contains no learning: every rule is a call into `cans.learning`, the same functions that
`DeviceLearner` and `EdgeAggregator` call. `compiled.py` jits all of them; without numba `play` runs
as plain Python.
"""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import Array, IntArray, LearnerState, PoolState
from cans.learning.arithmetic.choosing import (
    SAMPLED,
    choose_blindly,
    choose_lowest,
    glance,
    learned_scores,
    must_not_stay_local,
)
from cans.learning.arithmetic.exchange import rides, upload_is_due
from cans.learning.arithmetic.idle import (
    note_run,
    soonest_at_server,
    wants_own_run,
    wants_server_run,
)
from cans.learning.arithmetic.linear import accumulate, estimate, observe, wants_fleet_sync
from cans.learning.arithmetic.observing import learn, observe_physically, unsurprised
from cans.learning.arithmetic.pooling import acknowledge, send
from cans.learning.arithmetic.scoring import refresh
from cans.simulation.engines.exchanging import (
    deliver,
    deliver_waiting,
    download,
    pull,
    synchronise,
    upload,
)
from cans.simulation.engines.fleet_arrays import Record, Rules, Traffic, Truth
from cans.simulation.engines.measuring import (
    expected_ms,
    measure,
    place_at,
    probe_ms,
    profiled_ms,
)
from cans.simulation.worlds.episode import Episode

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
            experience(state, device, part, at_zero, per_ms, offline_ms[device, run], choice)
        if traffic.pool_of[device, part] >= 0:
            send(state, device, part)
            deliver(state, pools, traffic, rules, device, part, state.epoch[device, part], 0.0)
            acknowledge(state, device, part)
    pools.told[:, part] = pools.statistics[:, part]
    pools.choices_told[:, part] = pools.choices[:, part]
    for device in range(devices):
        if traffic.pool_of[device, part] >= 0:
            download(state, pools, traffic, device, part)
        elif not state.physics.used:
            estimate(state, device, part)


def experience(
    state: LearnerState,
    device: int,
    part: int,
    at_zero: Array,
    per_ms: Array,
    latency: float,
    choice: int,
) -> None:
    """An observation that is no inference: a partial local run up to a choice, or a probe (-1)."""
    if state.physics.used:
        learn(state, device, part, at_zero, per_ms, latency, choice)
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
    """Every device times an exchange of each size and tells of it, one device after the other."""
    part, sizes = rules.link_part, rules.probe_bytes.shape[0]
    if part < 0 or rules.probe_after == np.inf:
        return
    for device in range(truth.place_of.shape[0]):
        if rules.fresh:
            pull(state, pools, traffic, rules, device, record, 0)
        if state.physics.used:
            refresh(state, device)
        for size in range(sizes):
            factor, shift = (
                episode.arrival_factor[device, size],
                episode.arrival_shift[device, size],
            )
            place = truth.place_of[device]
            milliseconds = probe_ms(truth, rules, episode, device, place, size, 1.0, factor, shift)
            at_zero, per_ms = rules.probe_at_zero[size], rules.probe_per_ms[size]
            experience(state, device, part, at_zero, per_ms, milliseconds, -1)
        record.probes[0] += sizes
        if traffic.pool_of[device, part] >= 0:  # all of it, as `DeviceLearner` tells it
            state.startling[device, part] = 0.0
            upload(state, pools, traffic, rules, device, part, 0.0, record, 0)


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
    allowed = truth.allowed[place_at(truth, episode, t)]
    if rules.choose > SAMPLED:
        return choose_blindly(rules.choose, allowed, episode.uniform[t])
    known = expected if rules.truth else profiled_ms(truth, rules, truth.place_of[device])
    scores = known
    if rules.parts > 0:
        weight = rules.key_frame_weight[1 if episode.key_frame[t] else 0]
        learned = learned_scores(
            state, device, rules.choose, weight, episode.normals[t], allowed, truth.restricted
        )
        scores = known + learned
    forced = rules.forced_sampling and must_not_stay_local(frame)
    pick, tied = choose_lowest(scores, allowed, truth.restricted, forced)
    pick = glance(state, device, pick, allowed, truth.restricted, np.zeros_like(expected))
    record.ties[0] += tied
    predicted = known[pick]
    for part in range(rules.parts):
        predicted += state.mean[device, part, pick]
    record.error_ms[t] = abs(predicted - expected[pick])
    return pick


def note(
    truth: Truth, episode: Episode, t: int, pick: int, expected: Array, record: Record
) -> None:
    """Write down the choice and what it cost."""
    best = expected.min()
    if truth.restricted:
        best = np.where(truth.allowed[place_at(truth, episode, t)], expected, np.inf).min()
    record.active[t] = episode.active[t]
    record.picks[t] = pick
    record.expected_ms[t] = expected[pick]
    record.regret_ms[t] = expected[pick] - best


def probe(
    state: LearnerState,
    rules: Rules,
    truth: Truth,
    episode: Episode,
    t: int,
    record: Record,
) -> bool:
    """A device that stays local and has not heard of the link for a while times a small exchange,
    disturbed as this round's link; whether it did."""
    device, part = episode.active[t], rules.link_part
    if part < 0 or t - state.heard[device, part] <= rules.probe_after:
        return False
    factor, shift = episode.factor[t, 1], episode.shift[t, 1]
    place, scale = place_at(truth, episode, t), episode.scale[t, 1]
    milliseconds = probe_ms(truth, rules, episode, device, place, 0, scale, factor, shift)
    at_zero, per_ms = rules.probe_at_zero[0], rules.probe_per_ms[0]
    experience(state, device, part, at_zero, per_ms, milliseconds, -1)
    state.heard[device, part] = t
    record.probes[0] += 1
    return True


def tells(state: LearnerState, traffic: Traffic, rules: Rules, device: int, pick: int) -> bool:
    """Whether a device has something to upload, that other parts may travel with."""
    for part in range(rules.parts):
        waits = traffic.pool_of[device, part] < 0 or traffic.waiting[device, part]
        observed = bool(state.informative[part, pick])
        if state.events[part] and not waits and tells_of(state, device, part, observed):
            return True
    return False


def tells_of(state: LearnerState, device: int, part: int, observed: bool) -> bool:
    """Whether a device is to upload a part, of which it has observed something now or not. That a
    pool has grown meanwhile is no reason by itself."""
    if state.events[part] and not observed:
        return False
    return upload_is_due(state, device, part)


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
        note(truth, episode, t, pick, expected, record)
        if not rules.immediate and pick != local:
            deliver_waiting(state, pools, traffic, rules, device, time, record, t)
        measure(truth, episode, t, pick, latency)  # line 5
        record.latency_ms[t] = latency[0] + latency[1] + latency[2]
        latency *= truth.report[device]
        for part in range(rules.parts):  # lines 6-9
            if state.informative[part, pick]:
                take(state, rules, device, part, pick, latency, time)
        note_run(state, device, pick, time)
        told = tells(state, traffic, rules, device, pick)
        probed = pick == local and probe(state, rules, truth, episode, t, record)
        for part in range(rules.parts):  # lines 9-15
            observed = state.informative[part, pick] or (probed and part == rules.link_part)
            if rules.fleet_threshold > 0.0:
                if wants_fleet_sync(state, device, part, rules.fleet_threshold):
                    synchronise(state, pools, traffic, rules, part, time, record, t)
            elif traffic.pool_of[device, part] < 0 or traffic.waiting[device, part]:
                continue
            elif tells_of(state, device, part, observed) or (told and rides(state, part, pick)):
                upload(state, pools, traffic, rules, device, part, time, record, t)
            elif state.events[part] and observed and (pick != local or part == rules.link_part):
                unsurprised(pools.alarm[traffic.pool_of[device, part], part])
        if state.physics.used and rules.probe_after < np.inf:
            use_what_is_idle(state, pools, traffic, rules, truth, episode, record, t, pick)


def take(
    state: LearnerState,
    rules: Rules,
    device: int,
    part: int,
    choice: int,
    latency: Array,
    time: float,
) -> None:
    """Lines 7-8: a part learns from what it explains of three measured latencies."""
    explains = rules.explains[part]
    explained = explains[0] * latency[0] + explains[1] * latency[1]
    explained += explains[2] * latency[2]
    state.heard[device, part] = max(time, state.heard[device, part])
    if state.physics.used:
        observe_physically(state, device, part, choice, explained)
    else:
        observe(state, device, part, choice, explained)


# --- beside an answer ----------------------------------------------------------------------------


def use_what_is_idle(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    truth: Truth,
    episode: Episode,
    record: Record,
    t: int,
    pick: int,
) -> None:
    """After an answer: run the whole model here, or have the server do it, for their own sake."""
    device, time, every = episode.active[t], float(t), rules.probe_after
    local = truth.front_ms.shape[1] - 1
    if wants_own_run(state, device, pick, time, every):
        refresh(state, device)
        try_beside(state, pools, traffic, rules, truth, episode, record, t, local)
    if wants_server_run(state, device, pick, traffic.worked[0], time, every):
        refresh(state, device)
        raw = soonest_at_server(state, device, state.physics.server_part, rules.raw)
        if truth.allowed[place_at(truth, episode, t), raw]:
            if not rules.immediate:
                deliver_waiting(state, pools, traffic, rules, device, time, record, t)
            try_beside(state, pools, traffic, rules, truth, episode, record, t, raw)
            traffic.worked[0] = time
    elif state.physics.server_part >= 0 and not state.physics.idle_server[pick]:
        traffic.worked[0] = time


def try_beside(
    state: LearnerState,
    pools: PoolState,
    traffic: Traffic,
    rules: Rules,
    truth: Truth,
    episode: Episode,
    record: Record,
    t: int,
    choice: int,
) -> None:
    """Make a choice for which nobody waits, disturbed as this round is, and learn from it."""
    device, time, told = episode.active[t], float(t), False
    sent = choice != truth.front_ms.shape[1] - 1
    latency = np.zeros(3)
    measure(truth, episode, t, choice, latency)
    latency *= truth.report[device]
    for part in range(rules.parts):
        if tried(state, part, choice, sent):
            take(state, rules, device, part, choice, latency, time)
            due = tells_of(state, device, part, True)
            told = told or (due and can_tell(traffic, device, part))
    if not sent:
        note_run(state, device, choice, time)
    for part in range(rules.parts):
        if tried(state, part, choice, sent) and can_tell(traffic, device, part):
            if tells_of(state, device, part, True) or (told and rides(state, part, choice)):
                upload(state, pools, traffic, rules, device, part, time, record, t)
            elif state.events[part] and sent:  # the server has seen it
                unsurprised(pools.alarm[traffic.pool_of[device, part], part])
    record.trials[0] += 1


def tried(state: LearnerState, part: int, choice: int, sent: bool) -> bool:
    """Whether a part is put to work: link and server by what is sent, the front-end by the rest."""
    return bool(state.informative[part, choice]) and (part != state.physics.front_part) == sent


def can_tell(traffic: Traffic, device: int, part: int) -> bool:
    """Whether a part has a pool, and no upload to it waits."""
    return bool(traffic.pool_of[device, part] >= 0 and not traffic.waiting[device, part])
