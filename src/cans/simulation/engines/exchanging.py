"""What passes between a simulated fleet and its server, over arrays: uploads, pools and news.

When something is sent and what becomes of it are rules of `cans.learning`; here they are applied to
every device in turn. In the subset of NumPy that numba compiles.
"""

from __future__ import annotations

from cans.learning.arithmetic.arrays import LearnerState, PoolState
from cans.learning.arithmetic.exchange import NEWS_BURST, NEWS_SECONDS
from cans.learning.arithmetic.pooling import acknowledge, confirm, merge, publish, send, take_in
from cans.simulation.engines.fleet_arrays import Record, Rules, Traffic


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
    choices = pools.choices[pool, part] * 0.0
    if state.choices.used:
        choices = state.choices.sent[device, part]
    merge(pools, pool, part, sent, epoch, time, state.ridge, rules.watched[part], size, choices)
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
    statistics, choices = pools.statistics[pool, part], pools.choices[pool, part]
    take_in(state, device, part, statistics, epoch, round_, time, choices)


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
