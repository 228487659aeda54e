"""The round loop over the real learner objects: what production runs, with the world simulated.

Slow and obvious, it is `--engine reference`; the compiled engine must agree with it pick by pick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray
from cans.learning.arithmetic.exchange import Editions, Watcher
from cans.learning.choice import Choice, Context, Latencies
from cans.learning.device.learner import DeviceLearner
from cans.learning.edge import EdgeAggregator
from cans.learning.messages import DeviceIdentity, Download, PoolKey, Upload
from cans.learning.policies import Hyperparameters, Policy
from cans.learning.table import PROBE_BYTES, SEGMENTS, PartitionTable
from cans.simulation.engines.arrays import new_record
from cans.simulation.engines.fleet_arrays import Record
from cans.simulation.engines.own_runs import new_server, own_runs
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
    learners = new_learners(world, policy, hyperparameters, radii)
    record = new_record(episode.rounds, len(policy.parts))
    exchange = Exchange(policy, hyperparameters, learners, record)
    server = new_server(world.table, policy, hyperparameters)
    exchange.edge.join(own_runs(server, episode))
    enrol(learners, exchange.edge, episode)
    exchange.begin()
    _arrive(world, episode, learners, exchange, immediate)
    told = world.told_per_ms(policy)
    refreshed: dict[int, float] = {}
    unheard: dict[int, deque[tuple[Choice, Latencies, PartitionTable]]] = {}  # by device

    for t in range(episode.rounds):
        device, time = int(episode.active[t]), float(t)
        learner = learners[device]
        exchange.t = t
        exchange.frames[device] += 1
        sized, draw = world.at(float(episode.draw[t]))
        learner.use_rows(sized.table)
        total = (expected := expected_latency(sized, episode, t)).sum(axis=0)
        allowed = sized.allowed[place_at(sized, episode, t)]
        if policy.fresh and time - refreshed.get(device, -np.inf) >= pool_age:
            refreshed[device] = time
            exchange.pull(device)

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
            exchange.contact(device, time)

        latencies = measured_latency(sized, episode, t, pick, expected[:, pick], draw)
        record.latency_ms[t] = sum(latencies)
        reported = Latencies(*(np.array(latencies) * told[device]).tolist())
        late = unheard.setdefault(device, deque())
        late.append((choice, reported, sized.table))
        uploads: tuple[Upload, ...] = ()
        if len(late) > world.delay:
            heard, reported, rows = late.popleft()
            learner.use_rows(rows)
            uploads = learner.observe(heard, reported, time)
        probed = pick == world.table.local and learner.trials.wants_probe(time)
        if probed:
            record.probes[0] += 1
            uploads += learner.observe_probe([timed_probe(world, episode, t)], time)
        if policy.fleet_sync and uploads:
            _synchronise(learners, exchange.edge, uploads, time)
            for count in (
                record.uploads[t : t + 1],
                record.downloads[t : t + 1],
                record.part_uploads,
                record.part_downloads,
            ):
                count[0] += len(learners)
        else:
            exchange.uploaded(device, uploads, time, immediate)
            exchange.kept_quiet(learner, pick, probed, uploads)
        for row in exchange.idle(device, pick, allowed, time):
            learner.use_rows(sized.table)
            sent = row != world.table.local
            if sent:
                exchange.contact(device, time)
            measured = measured_latency(sized, episode, t, row, expected[:, row], draw)
            front, link, service = (np.array(measured) * told[device]).tolist()
            tried = Latencies(None, link, service) if sent else Latencies(front, None, None)
            uploads = learner.observe(row, tried, time)
            exchange.uploaded(device, uploads, time, immediate)
            if sent:
                exchange.kept_quiet(learner, row, False, uploads)
            record.trials[0] += 1
    record.ties[0] = sum(learner.tied for learner in learners)
    return record


class Exchange:
    """The server, who is told what by it, and the count of it all."""

    def __init__(
        self,
        policy: Policy,
        hyperparameters: Hyperparameters,
        learners: list[DeviceLearner],
        record: Record,
    ) -> None:
        self.edge = EdgeAggregator(policy, hyperparameters)
        self.waiting: dict[int, list[Upload]] = {}
        self.frames = [0] * len(learners)
        self.t = 0
        self._policy, self._learners, self.record = policy, learners, record
        self._number = {part.name: i for i, part in enumerate(policy.parts)}
        self._editions = Editions(policy.ridge_of(hyperparameters))
        self._watchers: list[Watcher] = []
        self._worked = 0.0  # when the server last did most of the model's work

    def begin(self) -> None:
        """Everyone has joined, and knows the pools as they are now."""
        for pool in self.edge.pools:
            self._editions.note(self.edge.download(pool))
        for learner in self._learners:
            known = {key: self._version(key) for key in learner.pools()}
            self._watchers.append(Watcher.of(learner.identity.device, known, 0.0))

    def pull(self, device: int) -> None:
        """Whatever the server has to tell this device. The watcher's clock counts the device's own
        inferences, one a second."""
        watcher = self._watchers[device]
        for key in watcher.due(float(self.frames[device])):
            watcher.told(key, self._version(key))
            self._receive(device, self.edge.download(key))

    def contact(self, device: int, time: float) -> None:
        """Uploads that wait travel with a request."""
        for upload in self.waiting.pop(device, []):
            self.send(device, upload, time, adopts=True)

    def idle(self, device: int, pick: int, allowed: BoolArray, time: float) -> Iterator[int]:
        """The choices to make beside an answer, for the sake of parts that have been idle for long:
        the whole model here, the raw input for the server."""
        learner = self._learners[device]
        if learner.trials.wants_own_run(time, pick):
            learner.get_ready()
            yield learner.table.local
        if learner.trials.wants_server_run(time, pick, self._worked):
            row = learner.trials.work_choice
            if allowed[row]:
                self._worked = time
                yield row
        elif not learner.trials.is_light(pick):
            self._worked = time

    def uploaded(
        self, device: int, uploads: Sequence[Upload], time: float, immediate: bool
    ) -> None:
        """A device has made uploads."""
        if not immediate:
            self.waiting.setdefault(device, []).extend(uploads)
            return
        for upload in uploads:
            self.send(device, upload, time, adopts=not self._policy.fresh)

    def kept_quiet(
        self, learner: DeviceLearner, pick: int, probed: bool, uploads: Sequence[Upload]
    ) -> None:
        """A device has learned from a request, or from an exchange that it timed, which the server
        has seen, and told nothing of it, of some parts."""
        told = {upload.key for upload in uploads}
        for key in learner.pools():
            part = self._policy.part(key.part)
            seen = probed and part.name == "link"
            if pick != learner.table.local:
                seen = bool(learner.table.columns(part.explains)[pick].any())
            if part.events and seen and key not in told:
                self.edge.unsurprised(key)

    def send(self, device: int, upload: Upload, time: float, adopts: bool) -> None:
        """An upload reaches the server, and its answer the device."""
        download = self.edge.merge(upload, time)
        events = self._policy.part(upload.key.part).events
        news = self._editions.note(download) if events else True
        for watcher in self._watchers:
            watcher.changed(download, news, upload.device if events else None)
        self.record.uploads[self.t] += 1
        self.record.part_uploads[self._number[upload.key.part]] += 1
        if adopts:
            self._watchers[device].told(upload.key, self._version(upload.key))
            self._receive(device, download)
        else:
            self._learners[device].acknowledge(download)

    def _receive(self, device: int, download: Download) -> None:
        self._learners[device].adopt(download)
        self.record.downloads[self.t] += 1
        self.record.part_downloads[self._number[download.key.part]] += 1

    def _version(self, key: PoolKey) -> tuple[int, int]:
        pool = self.edge.pools[key]
        return pool.epoch, pool.round


def _arrive(
    world: World,
    episode: Episode,
    learners: list[DeviceLearner],
    exchange: Exchange,
    immediate: bool,
) -> None:
    """Every device times an exchange of each size and tells of it, one device after the other."""
    for device, learner in enumerate(learners):
        if not learner.trials.wants_all_probes():
            continue
        if learner.policy.fresh:
            exchange.pull(device)
        measured = arrival_probes(world, episode, device)
        exchange.uploaded(device, learner.observe_probe(measured, tell=True), 0.0, immediate)
        exchange.record.probes[0] += len(measured)


def arrive(
    world: World, episode: Episode, learners: list[DeviceLearner], edge: EdgeAggregator
) -> int:
    """The same where uploads are merged at once; returns how many there were."""
    uploads = 0
    for device, learner in enumerate(learners):
        if not learner.trials.wants_all_probes():
            continue
        for key in learner.pools():
            learner.adopt(edge.download(key))
        measured = arrival_probes(world, episode, device)
        for upload in learner.observe_probe(measured, tell=True):
            learner.acknowledge(edge.merge(upload))
            uploads += 1
    return uploads


def arrival_probes(world: World, episode: Episode, device: int) -> list[float]:
    """What exchanges of each size take a device when it arrives."""
    noise = zip(episode.arrival_factor[device], episode.arrival_shift[device], strict=True)
    return [
        _exchange_ms(world, episode, device, world.place_of[device], size, 1.0, factor, shift)
        for size, (factor, shift) in zip(PROBE_BYTES, noise, strict=True)
    ]


def place_at(world: World, episode: Episode, t: int) -> int:
    """Where the active device is at round t."""
    return int(world.place_of[episode.active[t]] + episode.moved[t])


def expected_latency(world: World, episode: Episode, t: int) -> Array:
    """(segments, choices) expected milliseconds of the active device at round t."""
    place, scale = place_at(world, episode, t), episode.scale[t]
    return np.array(
        [
            world.front_ms[place] * scale[0],
            world.link_fixed_ms + world.link_ms[place] * scale[1],
            world.server_ms[place] * scale[2],
        ]
    )


def measured_latency(
    world: World, episode: Episode, t: int, pick: int, expected: Array, draw: float = -1.0
) -> tuple[float, ...]:
    """Expected latencies as they were disturbed; a segment that does not take place takes 0 ms.
    Of a trace: one of its rows, by a uniform draw (negative: the episode's own)."""
    if world.samples.size:
        where = place_at(world, episode, t), pick
        share = draw if draw >= 0.0 else float(episode.draw[t])
        row = int(share * world.sample_count[where])
        return tuple((world.samples[where][row] * episode.scale[t]).tolist())
    offloads = pick != world.table.local
    takes_place = (bool(world.table.front[pick].any()), offloads, offloads)
    measured = expected * episode.factor[t] + episode.shift[t]
    if episode.clip:
        measured = np.maximum(measured, 0.0)
    return tuple(float(ms) if real else 0.0 for ms, real in zip(measured, takes_place, strict=True))


def timed_probe(world: World, episode: Episode, t: int) -> float:
    """What a small exchange takes, disturbed as this round's link."""
    device, scale = int(episode.active[t]), float(episode.scale[t, 1])
    factor, shift = episode.factor[t, 1], episode.shift[t, 1]
    place = place_at(world, episode, t)
    return _exchange_ms(world, episode, device, place, PROBE_BYTES[0], scale, factor, shift)


def _exchange_ms(
    world: World,
    episode: Episode,
    device: int,
    place: int,
    size: int,
    scale: float,
    factor: float,
    shift: float,
) -> float:
    """What a device reports of a timed exchange of so many bytes."""
    stretched, fixed = world.probe_ms[place]
    expected = stretched * (size / PROBE_BYTES[0]) * scale + fixed
    disturbed = expected * factor + shift
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
