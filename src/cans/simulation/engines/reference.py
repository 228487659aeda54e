"""The round loop over the real learner objects: what production runs, with the world simulated.

Slow and obvious, it is `--engine reference`; the compiled engine must agree with it pick by pick.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cans.learning.arrays import Array
from cans.learning.device import Context, DeviceLearner, Latencies
from cans.learning.edge import EdgeAggregator
from cans.learning.messages import DeviceIdentity, Download, PoolKey, Upload
from cans.learning.policies import Hyperparameters, Policy
from cans.learning.table import SEGMENTS
from cans.simulation.engines.arrays import new_record
from cans.simulation.engines.fast import Record
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.world import World


def new_learners(
    world: World,
    policy: Policy,
    hyperparameters: Hyperparameters,
    radii: Mapping[str, Array] | None = None,
) -> list[DeviceLearner]:
    """One learner for each device of the world."""
    return [
        DeviceLearner(
            world.table,
            policy,
            DeviceIdentity(
                f"device-{device}",
                type=world.types[world.type_of[device]],
                network=world.networks[world.network_of[device]],
            ),
            hyperparameters,
            radius={name: float(values[device]) for name, values in (radii or {}).items()},
            known=known_latency(world, policy, device),
        )
        for device in range(world.devices)
    ]


def known_latency(world: World, policy: Policy, device: int) -> Array | None:
    """What a policy is told beforehand: nominal milliseconds of the segments it knows."""
    if not policy.knows or policy.truth:
        return None
    by_segment = dict(zip(SEGMENTS, world.segments_ms(device), strict=True))
    known: Array = np.sum([by_segment[segment] for segment in policy.knows], axis=0)
    return known


def enrol(learners: list[DeviceLearner], edge: EdgeAggregator, episode: Episode) -> None:
    """Everyone joins with its offline runs; then everyone adopts what all have brought."""
    for device, learner in enumerate(learners):
        choices, latencies = episode.offline_choice[device], episode.offline_ms[device]
        offline = list(zip(choices.tolist(), latencies.tolist(), strict=True))
        for download in edge.join(learner.join(offline)):
            learner.adopt(download)
    for learner in learners:
        for key in learner.pools():
            learner.adopt(edge.download(key))


def play(
    world: World,
    policy: Policy,
    hyperparameters: Hyperparameters,
    episode: Episode,
    radii: Mapping[str, Array] | None = None,
    immediate: bool = True,
    pool_age: float = 0.0,
) -> Record:
    """Play an episode with objects and messages."""
    edge = EdgeAggregator()
    learners = new_learners(world, policy, hyperparameters, radii)
    enrol(learners, edge, episode)
    record = new_record(episode.rounds, len(policy.parts))
    number = {part.name: i for i, part in enumerate(policy.parts)}
    waiting: dict[int, list[Upload]] = {}
    refreshed: dict[int, float] = {}
    seen: dict[tuple[int, PoolKey], int] = {}

    def receive(device: int, download: Download) -> None:
        seen[device, download.key] = download.round
        learners[device].adopt(download)
        record.part_downloads[number[download.key.part]] += 1

    def send(device: int, upload: Upload, time: float, adopts: bool) -> None:
        download = edge.merge(upload, time)
        record.uploads[t] += 1
        record.part_uploads[number[upload.key.part]] += 1
        if adopts:
            receive(device, download)
        else:
            learners[device].acknowledge(download)

    for t in range(episode.rounds):
        device, time = int(episode.active[t]), float(t)
        learner = learners[device]
        expected = expected_latency(world, episode, t)
        allowed = world.allowed[world.place_of[device]]
        if policy.fresh and time - refreshed.get(device, -np.inf) >= pool_age:
            refreshed[device] = time
            for key in learner.pools():
                if edge.pools[key].round != seen.get((device, key), 0):
                    receive(device, edge.download(key))

        total = expected.sum(axis=0)
        choice = learner.select(
            Context(
                uniform=float(episode.uniform[t]),
                normals=episode.normals[t],
                key_frame=bool(episode.key_frame[t]),
                allowed=allowed,
                known=total if policy.truth else None,
            )
        )
        pick = choice.row
        record.active[t] = device
        record.picks[t] = pick
        record.expected_ms[t] = total[pick]
        record.regret_ms[t] = total[pick] - total[allowed].min()
        record.error_ms[t] = abs(choice.predicted_ms - total[pick])

        if pick != world.table.local:  # a waiting upload travels with this round's request
            for upload in waiting.pop(device, []):
                send(device, upload, time, adopts=True)

        latencies = measured_latency(world, episode, t, pick, expected[:, pick])
        record.latency_ms[t] = sum(latencies)
        reported = Latencies(*(float(ms * world.report[device]) for ms in latencies))
        uploads = learner.observe(choice, reported, time)
        if pick == world.table.local and learner.wants_probe(time):
            record.probes[0] += 1
            uploads += learner.observe_probe([timed_probe(world, episode, t)], time)
        if policy.fleet_sync and uploads:
            _synchronise(learners, edge, uploads, time)
            for count in (record.uploads[t : t + 1], record.part_uploads, record.part_downloads):
                count[0] += len(learners)
        elif immediate:
            for upload in uploads:
                send(device, upload, time, adopts=not policy.fresh)
        elif uploads:
            waiting.setdefault(device, []).extend(uploads)
    record.ties[0] = sum(learner.tied for learner in learners)
    return record


def expected_latency(world: World, episode: Episode, t: int) -> Array:
    """(segments, choices) expected milliseconds of the active device at round t."""
    place, scale = world.place_of[episode.active[t]], episode.scale[t]
    return np.array(
        [
            world.front_ms[place] * scale[0],
            world.link_fixed_ms + world.link_ms[place] * scale[1],
            world.server_ms[place] * scale[2],
        ]
    )


def measured_latency(
    world: World, episode: Episode, t: int, pick: int, expected: Array
) -> tuple[float, ...]:
    """Expected latencies as they were disturbed; a segment that does not take place takes 0 ms."""
    if world.samples.size:
        where = world.place_of[episode.active[t]], pick
        row = int(episode.draw[t] * world.sample_count[where])
        return tuple(world.samples[where][row].tolist())
    offloads = pick != world.table.local
    takes_place = (bool(world.table.front[pick].any()), offloads, offloads)
    measured = expected * episode.factor[t] + episode.shift[t]
    if episode.clip:
        measured = np.maximum(measured, 0.0)
    return tuple(float(ms) if real else 0.0 for ms, real in zip(measured, takes_place, strict=True))


def timed_probe(world: World, episode: Episode, t: int) -> float:
    """What a small exchange takes, disturbed as this round's link."""
    device = episode.active[t]
    stretched, fixed = world.probe_ms[world.place_of[device]]
    expected = stretched * episode.scale[t, 1] + fixed
    disturbed = expected * episode.factor[t, 1] + episode.shift[t, 1]
    if episode.clip:
        disturbed = max(disturbed, 0.0)
    return float(disturbed * world.report[device])


def _synchronise(
    learners: list[DeviceLearner], edge: EdgeAggregator, uploads: tuple[Upload, ...], time: float
) -> None:
    """DisLinUCB: one trigger, and the whole fleet uploads, then downloads."""
    for upload in uploads:
        edge.merge(upload, time)
    for learner in learners:
        for upload in learner.flush():
            learner.adopt(edge.merge(upload, time))
    for learner in learners:
        for key in learner.pools():
            learner.adopt(edge.download(key))
