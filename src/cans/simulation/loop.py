"""The round loop over the real learner objects: what production runs, with the world simulated.

Slow and obvious, it is `--engine reference`; the compiled engine must agree with it pick by pick.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cans.learning.device import Context, DeviceLearner, Latencies
from cans.learning.edge import EdgeAggregator
from cans.learning.messages import DeviceIdentity, Upload
from cans.learning.policies import Hyperparameters, Policy
from cans.learning.state import Array
from cans.simulation.engine import Record
from cans.simulation.episode import Episode
from cans.simulation.fleet import SEGMENTS, new_record
from cans.simulation.worlds import World


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
) -> Record:
    """Play an episode with objects and messages."""
    edge = EdgeAggregator()
    learners = new_learners(world, policy, hyperparameters, radii)
    enrol(learners, edge, episode)
    record = new_record(episode.rounds, len(policy.parts))
    part_number = {part.name: i for i, part in enumerate(policy.parts)}
    waiting: dict[int, list[Upload]] = {}

    def exchange(device: int, upload: Upload, t: int) -> None:
        learners[device].adopt(edge.merge(upload, float(t)))
        record.uploads[t] += 1
        record.part_uploads[part_number[upload.key.part]] += 1

    for t in range(episode.rounds):
        device = int(episode.active[t])
        learner = learners[device]
        expected = _expected(world, episode, t)
        choice = learner.select(
            Context(
                time=float(t),
                uniform=float(episode.uniform[t]),
                normals=episode.normals[t],
                key_frame=bool(episode.key_frame[t]),
                known=expected.sum(axis=0) if policy.truth else None,
            )
        )
        total = expected.sum(axis=0)
        pick = choice.row
        record.active[t] = device
        record.picks[t] = pick
        record.regret_ms[t] = total[pick] - total.min()
        record.error_ms[t] = abs(choice.predicted_ms - total[pick])

        if pick != world.table.local:  # a waiting upload travels with this round's request
            for upload in waiting.pop(device, []):
                exchange(device, upload, t)

        latencies = _measured(world, episode, t, pick, expected[:, pick])
        record.latency_ms[t] = sum(latencies)
        uploads = learner.observe(choice, Latencies(*latencies), float(t))
        if policy.fleet_sync and uploads:
            _synchronise(learners, edge, uploads, float(t))
            record.uploads[t] += len(learners)
            record.part_uploads[0] += len(learners)
        elif immediate:
            for upload in uploads:
                exchange(device, upload, t)
        elif uploads:
            waiting.setdefault(device, []).extend(uploads)
    record.ties[0] = sum(learner.tied for learner in learners)
    return record


def _expected(world: World, episode: Episode, t: int) -> Array:
    """(segments, choices) expected milliseconds of the active device at round t."""
    device, scale = episode.active[t], episode.scale[t]
    return np.array(
        [
            world.front_ms[world.type_of[device]] * scale[0],
            world.link_fixed_ms + world.link_ms[world.network_of[device]] * scale[1],
            world.server_ms * scale[2],
        ]
    )


def _measured(
    world: World, episode: Episode, t: int, pick: int, expected: Array
) -> tuple[float, ...]:
    """Expected latencies as they were disturbed; a segment that does not take place takes 0 ms."""
    offloads = pick != world.table.local
    takes_place = (bool(world.table.front[pick].any()), offloads, offloads)
    measured = expected * episode.factor[t] + episode.shift[t]
    if episode.clip:
        measured = np.maximum(measured, 0.0)
    return tuple(float(ms) if real else 0.0 for ms, real in zip(measured, takes_place, strict=True))


def _synchronise(
    learners: list[DeviceLearner], edge: EdgeAggregator, uploads: tuple[Upload, ...], time: float
) -> None:
    """DisLinUCB: one trigger, and the whole fleet uploads, then downloads."""
    for upload in uploads:
        edge.merge(upload, time)
    for learner in learners:
        for upload in learner.flush(time):
            learner.adopt(edge.merge(upload, time))
    for learner in learners:
        for key in learner.pools():
            learner.adopt(edge.download(key))
