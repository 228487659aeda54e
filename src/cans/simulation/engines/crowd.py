"""Everyone at once: an event simulation around the same learner objects as the round loop.

A device makes one inference at a time and pauses between them; requests wait for a worker of the
server. With infinite workers and one inference at a time this is the round loop, pick by pick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from cans.learning.arithmetic.arrays import Array, BoolArray, IntArray
from cans.learning.choice import Choice, Context, Latencies
from cans.learning.congestion import Load, not_of_this_moment
from cans.learning.device.learner import DeviceLearner
from cans.learning.edge import EdgeAggregator
from cans.learning.messages import PoolKey, Upload
from cans.learning.policies import Hyperparameters, Policy
from cans.simulation.engines.crowd_server import Job, Server
from cans.simulation.engines.own_runs import new_server, own_runs
from cans.simulation.engines.reference import (
    arrive,
    enrol,
    expected_latency,
    measured_latency,
    new_learners,
    place_at,
    timed_probe,
)
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.world import World

ARRIVE, REACH, DONE, FINISH = range(4)


@dataclass(frozen=True)
class Crowd:
    """How a fleet asks, and what its server is."""

    workers: float = 1.0
    arrivals: Array | None = None  # (inferences,) seconds, ascending
    pauses: Array | None = None  # (inferences,) seconds that its device waits before it; neither of
    # the two: all devices ask at once, and again when all have their answers
    quotes: bool = True  # devices may ask for the present wait, and reserve
    quote_ms: float = 2.0  # what a question takes where no front-end runs meanwhile
    tell_s: float = 0.2  # how old the load is at most that is told in passing
    queue_limit: float = inf  # of requests that wait or run; one more is refused
    toll: float = 1.0  # the share of the toll that devices pay; 0: selfish
    slow_from_s: float = inf  # the server takes `slow_factor` times as long ...
    slow_until_s: float = inf  # ... until here
    slow_factor: float = 10.0
    assigned: IntArray | None = None  # (devices,) fixed choices instead of a policy's


class CrowdRecord(NamedTuple):
    """What happened to every inference; nan where it did not finish."""

    active: IntArray
    picks: IntArray
    started_s: Array
    latency_ms: Array
    wait_ms: Array  # for a worker
    toll_ms: Array  # that the choice was charged
    quoted: BoolArray
    looked: BoolArray  # the choice was made once to see what it takes
    refused: BoolArray  # by a full server; the device finished by itself
    probes: int  # requests sent for the server's sake
    uploads: int


@dataclass
class _Inference:
    device: int
    choice: Choice
    front: float
    link: float
    service: float
    sent: float = 0.0  # milliseconds before it is at the server
    waited: float = 0.0
    refused: bool = False
    rest: float = 0.0  # milliseconds of finishing on the device what the server refused
    probe: bool = False  # nobody waits for the answer


class _Play:
    def __init__(
        self,
        world: World,
        policy: Policy,
        numbers: Hyperparameters,
        episode: Episode,
        crowd: Crowd,
    ) -> None:
        if crowd.arrivals is None:  # who asks next is decided on the way
            episode = episode._replace(active=np.full(episode.rounds, -1))
        self.world, self.policy, self.episode, self.crowd = world, policy, episode, crowd
        self.edge = EdgeAggregator(policy, numbers)
        self.learners = new_learners(world, policy, numbers)
        self.edge.join(own_runs(new_server(world.table, policy, numbers), episode))
        enrol(self.learners, self.edge, episode)
        self.server = Server(crowd.workers, world.devices, crowd.tell_s, crowd.queue_limit)
        self.seen: dict[tuple[int, PoolKey], int] = {}
        self.running: dict[int, _Inference] = {}
        self.events: list[tuple[float, int, int, int]] = []
        self.order = 0
        self.probes = self.following = 0
        self.uploads = arrive(world, episode, self.learners, self.edge)
        rounds = episode.rounds
        self.record = CrowdRecord(
            active=episode.active,
            picks=np.full(rounds, -1),
            started_s=np.full(rounds, np.nan),
            latency_ms=np.full(rounds, np.nan),
            wait_ms=np.zeros(rounds),
            toll_ms=np.zeros(rounds),
            quoted=np.zeros(rounds, dtype=np.bool_),
            looked=np.zeros(rounds, dtype=np.bool_),
            refused=np.zeros(rounds, dtype=np.bool_),
            probes=0,
            uploads=0,
        )

    def at(self, time: float, kind: int, number: int) -> None:
        self.order += 1
        heappush(self.events, (time, self.order, kind, number))

    def play(self) -> CrowdRecord:
        crowd, time = self.crowd, 0.0
        if crowd.arrivals is not None:
            for number, when in enumerate(crowd.arrivals.tolist()):
                self.at(when, ARRIVE, number)
        elif crowd.pauses is not None:
            for device in range(self.world.devices):
                self._again(0.0, device)
        while True:
            if crowd.arrivals is None and crowd.pauses is None and not self._busy():
                for device in range(self.world.devices):
                    self._again(time, device)
            if not self.events:
                return self.record._replace(probes=self.probes, uploads=self.uploads)
            time, _, kind, number = heappop(self.events)
            if kind == ARRIVE:
                self._arrive(time, number)
            elif kind == REACH:
                self._reach(time, number)
            elif kind == DONE:
                self._done(time, number)
            else:
                self._finish(time, number)

    def _busy(self) -> bool:
        """Somebody waits for an answer, or is about to ask."""
        return bool(self.events) or any(not each.probe for each in self.running.values())

    def _again(self, time: float, device: int) -> None:
        """A device's next inference, if there is one left."""
        if self.following == self.episode.rounds:
            return
        number, self.following = self.following, self.following + 1
        self.record.active[number] = device
        pause = 0.0 if self.crowd.pauses is None else float(self.crowd.pauses[number])
        self.at(time + pause, ARRIVE, number)

    # --- choosing ---

    def _arrive(self, time: float, number: int) -> None:
        device = int(self.episode.active[number])
        learner = self.learners[device]
        self._pull(device)
        expected = expected_latency(self.world, self.episode, number)
        load, quoted = self._load(time, learner)
        choice = self._choose(number, device, expected.sum(axis=0), load)
        record = self.record
        record.picks[number], record.started_s[number] = choice.row, time
        record.toll_ms[number], record.quoted[number] = choice.toll_ms, quoted
        record.looked[number] = choice.looked
        self._send(time, number, device, choice, expected[:, choice.row], quoted)
        wanted = self.crowd.assigned is None and learner.trials.wants_work(time, choice.row)
        if wanted and self.server.grants_work(time, learner.trials.work_every_s):
            self._probe(time, number, device, expected)

    def _load(self, time: float, learner: DeviceLearner) -> tuple[Load | None, bool]:
        """What a device knows of the load when it chooses, and whether it asked for that."""
        if not self.policy.load_aware or self.crowd.assigned is not None:
            return None, False
        told = self.server.told(time)
        ask = self.crowd.quotes and learner.crowd.worth_asking(told, self.crowd.quote_ms)
        return (self.server.load(time), True) if ask else (not_of_this_moment(told), False)

    def _choose(self, number: int, device: int, total: Array, load: Load | None) -> Choice:
        episode, table = self.episode, self.world.table
        if self.crowd.assigned is not None:
            row = int(self.crowd.assigned[device])
            return Choice(row, table.point_of[row], table.codec_of[row], np.nan, 0.0)
        return self.learners[device].select(
            Context(
                uniform=float(episode.uniform[number]),
                normals=episode.normals[number],
                key_frame=bool(episode.key_frame[number]),
                allowed=self.world.allowed[place_at(self.world, episode, number)],
                known=total if self.policy.truth else None,
                load=load,
                toll=self.crowd.toll,
            )
        )

    def _send(
        self,
        time: float,
        number: int,
        device: int,
        choice: Choice,
        expected: Array,
        quoted: bool,
    ) -> None:
        where = number % self.episode.rounds
        measured = measured_latency(self.world, self.episode, where, choice.row, expected)
        front, link, service = measured
        each = self.running[number] = _Inference(device, choice, front, link, service)
        each.probe = number != where
        if choice.row == self.world.table.local:
            self.at(time + 1e-3 * front, FINISH, number)
            return
        asked = max(self.crowd.quote_ms - front, 0.0) if quoted else 0.0
        each.sent = asked + front + link
        if quoted:
            self.server.announce(number, float(expected[2]))
        self.at(time + 1e-3 * each.sent, REACH, number)

    def _probe(self, time: float, number: int, device: int, expected: Array) -> None:
        """Real work for a server that nobody uses: the raw input, beside an answer made here. It is
        disturbed as that inference is."""
        self.probes += 1
        number = self.episode.rounds * self.probes + number
        learner, table = self.learners[device], self.world.table
        row = learner.trials.work_choice
        choice = Choice(row, table.point_of[row], table.codec_of[row], np.nan, 0.0)
        self._send(time, number, device, choice, expected[:, row], False)

    def _pull(self, device: int) -> None:
        if not self.policy.fresh:
            return
        for key in self.learners[device].pools():
            pool = self.edge.pools[key]
            if pool.round != self.seen.get((device, key), 0):
                self.seen[device, key] = pool.round
                self.learners[device].adopt(self.edge.download(key))

    # --- the server ---

    def _reach(self, time: float, number: int) -> None:
        each = self.running[number]
        if self.server.refuses(number):
            self._refuse(time, number, each)
            return
        slow = self.crowd.slow_from_s <= time < self.crowd.slow_until_s
        each.service *= self.crowd.slow_factor if slow else 1.0
        place = self.world.place_of[each.device]
        usual = float(self.world.server_ms[place, each.choice.row])
        expected = usual * (self.crowd.slow_factor if slow else 1.0)
        self._run(self.server.reach(Job(number, expected, each.service, time)), time)

    def _refuse(self, time: float, number: int, each: _Inference) -> None:
        """The device goes on from the tensors it has; for a probe nobody waits."""
        front = self.world.front_ms[self.world.place_of[each.device]]
        left = float(front[self.world.table.local] - front[each.choice.row])
        each.refused, each.rest = True, 0.0 if each.probe else left
        self.at(time + 1e-3 * each.rest, FINISH, number)

    def _run(self, job: Job | None, time: float) -> None:
        if job is not None:
            self.running[job.number].waited = 1e3 * (time - job.since)
            self.at(time + 1e-3 * job.service_ms, DONE, job.number)

    def _done(self, time: float, number: int) -> None:
        self.server.finish(number, time)
        self._run(self.server.start_next(time), time)
        self._finish(time, number)

    # --- learning ---

    def _finish(self, time: float, number: int) -> None:
        each = self.running.pop(number)
        began = time if each.probe else float(self.record.started_s[number])
        if not each.probe:
            offloads = each.choice.row != self.world.table.local
            server = each.rest if each.refused else each.waited + each.service
            self.record.wait_ms[number], self.record.refused[number] = each.waited, each.refused
            self.record.latency_ms[number] = each.sent + server if offloads else each.front
            if self.crowd.pauses is not None:
                self._again(time, each.device)
        if self.crowd.assigned is not None:
            return
        learner = self.learners[each.device]
        if not each.probe and not each.refused:
            learner.crowd.observe_wait(each.choice, each.waited)
        latencies = self._measured(each, learner.crowd.heeded)
        uploads = learner.observe(each.choice, latencies, began)
        if each.choice.row == self.world.table.local and learner.trials.wants_probe(began):
            uploads += learner.observe_probe([timed_probe(self.world, self.episode, number)], began)
        self._deliver(each.device, uploads, began)
        if not each.probe and learner.trials.wants_own_run(began, each.choice.row):
            self._run_whole(began, number, each.device)

    def _run_whole(self, time: float, number: int, device: int) -> None:
        """The whole model beside an answer, for its own sake, disturbed as that inference is."""
        learner, local = self.learners[device], self.world.table.local
        learner.get_ready()
        expected = expected_latency(self.world, self.episode, number)[:, local]
        front, _, _ = measured_latency(self.world, self.episode, number, local, expected)
        alone = Latencies(front=front * float(self.world.report[device]))
        self._deliver(device, learner.observe(local, alone, time), time)

    def _measured(self, each: _Inference, load_aware: bool) -> Latencies:
        """What the device tells of an inference. Of one that was refused nobody timed the way."""
        report = float(self.world.report[each.device])
        if each.refused:
            return Latencies(front=each.front * report)
        server = each.service + (0.0 if load_aware else each.waited)
        return Latencies(each.front * report, each.link * report, server * report)

    def _deliver(self, device: int, uploads: Sequence[Upload], time: float) -> None:
        self.uploads += len(uploads)
        for upload in uploads:
            download = self.edge.merge(upload, time)
            if self.policy.fresh:
                self.learners[device].acknowledge(download)
            else:
                self.learners[device].adopt(download)


def play(
    world: World,
    policy: Policy,
    numbers: Hyperparameters,
    episode: Episode,
    crowd: Crowd,
) -> CrowdRecord:
    """Play an episode whose rounds overlap."""
    return _Play(world, policy, numbers, episode, crowd).play()
