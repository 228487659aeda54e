"""`DeviceLearner`: one device's side of every policy. Three verbs: select, observe, adopt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log1p
from typing import NamedTuple

import numpy as np

from cans.learning import algebra, arithmetic, physical
from cans.learning.messages import DeviceIdentity, Download, PoolKey, Upload
from cans.learning.policies import Choose, Hyperparameters, Part, Policy, Pool
from cans.learning.state import (
    Array,
    BoolArray,
    LearnerState,
    Physics,
    contributions,
    new_state,
    padded,
    statistics_size,
)
from cans.learning.statistics import SufficientStatistics
from cans.learning.table import PartitionTable
from cans.learning.viability import floors, viable_choices

KEY_FRAME_WEIGHT = 0.8  # ANS: L on key frames ...
OTHER_FRAME_WEIGHT = 0.2  # ... and on all others


class Latencies(NamedTuple):
    """Measured milliseconds of one round. None: not measured, nothing is learned from it."""

    front: float | None = None
    link: float | None = None
    server: float | None = None

    def of(self, segments: Sequence[str]) -> float | None:
        """The sum over these segments, if all of them were measured."""
        total = 0.0
        for segment in segments:
            value: float | None = getattr(self, segment)
            if value is None:
                return None
            total += value
        return total


class Context(NamedTuple):
    """All that comes from outside when a device chooses: it has no clock and no dice."""

    time: float = 0.0
    uniform: float = 0.0  # a draw from [0, 1), for policy `random`
    normals: Array | None = None  # d standard normals, for `lints`
    key_frame: bool = False  # an important frame: ANS explores less
    allowed: BoolArray | None = None  # choices that may be taken, at least one; None: all
    known: Array | None = None  # today's expected latency of every choice, for `oracle`


NOTHING_SPECIAL = Context()


class Choice(NamedTuple):
    """What was chosen and how the learner saw it."""

    row: int  # of the partition table
    point: int
    codec: str
    predicted_ms: float  # expected latency by the present estimate; nan if the policy has none
    width_ms: float  # how much the choice was favoured for being uncertain
    tied: bool = False  # another choice was as good; the lower index won


@dataclass(frozen=True)
class PartRecord:
    """What a device must keep of one part to resume after a restart, and the laws must see."""

    key: PoolKey
    epoch: int
    sequence: int  # of the next upload
    synced: SufficientStatistics
    local: SufficientStatistics
    sent: SufficientStatistics | None  # on its way, under the number `sequence - 1`
    retired: SufficientStatistics  # observed for an epoch that had already ended
    sent_epoch: int | None = None  # the epoch that `sent` belongs to; None: `epoch`
    synced_time: float = 0.0  # of the adopted pool's last merge
    sent_time: float = 0.0
    own_time: float = 0.0  # the time to which `own` is aged
    own: SufficientStatistics | None = None  # what this device observed itself, for its pace


class DeviceLearner:
    """Learns where one device should cut, alone or with others, by the policy it is given.

    It holds no clock, socket, file or random source; whoever drives it supplies those.
    """

    def __init__(
        self,
        table: PartitionTable,
        policy: Policy,
        identity: DeviceIdentity | None = None,
        hyperparameters: Hyperparameters | None = None,
        *,
        radius: Mapping[str, Array | float] | None = None,
        known: Array | None = None,
    ) -> None:
        self.table = table
        self.policy = policy
        self.identity = identity or DeviceIdentity("device")
        self.hyperparameters = hyperparameters or Hyperparameters()
        if policy.knows and not policy.truth and known is None:
            raise ValueError(f"policy {policy.name!r} needs the known latency of every choice")
        self._known = known
        self._state = fleet_state(table, policy, self.hyperparameters, 1, radius)
        self._parts: dict[str, _PartLearner] = {
            part.name: _PartLearner(number, part, self, self._state)
            for number, part in enumerate(policy.parts)
        }
        self._frame = 0
        self.tied = 0  # how many choices were ties

    # --- join ---

    def join(self, offline: Sequence[tuple[int, float]] = ()) -> tuple[Upload, ...]:
        """Take in offline experience, (choice, front latency) each; returns sequence 0 of each
        shared part, for the server. What is pooled comes back with the first download."""
        return tuple(
            upload for part in self._parts.values() if (upload := part.start(offline)) is not None
        )

    # --- the three verbs ---

    def select(self, context: Context | None = None) -> Choice:
        """Alg. 1 line 4: the choice of the lowest optimistic latency (Eq. 3)."""
        context = context or NOTHING_SPECIAL
        self._frame += 1
        if self._state.physics.used:
            arithmetic.refresh(self._state, 0, context.time)
        if self.policy.choose in (Choose.LOCAL, Choose.OFFLOAD, Choose.UNIFORM):
            return self._made(self._unlearned(context), False)
        scores = self._scores(context)
        if context.allowed is not None:
            scores = np.where(context.allowed, np.minimum(scores, arithmetic.LARGE), np.inf)
        if (
            self.policy.forced_sampling
            and arithmetic.must_not_stay_local(self._frame)
            and np.isfinite(scores[: self.table.local]).any()  # somewhere else is allowed
        ):
            scores = scores.copy()
            scores[self.table.local] = np.inf
        index, tied = arithmetic.lowest(scores)
        self.tied += tied
        return self._made(index, tied, float(scores[index]))

    def observe(
        self, choice: Choice | int, latencies: Latencies, time: float = 0.0
    ) -> tuple[Upload, ...]:
        """Alg. 1 lines 7-9: learn from one round; returns the uploads that it triggers."""
        index = choice if isinstance(choice, int) else choice.row
        uploads = []
        for part in self._parts.values():
            latency = latencies.of(part.part.explains)
            if latency is None:
                continue
            if self._state.informative[part.number, index]:
                part.observe(index, latency, time)
            if part.wants_upload():
                uploads.append(part.upload(time))
        return tuple(uploads)

    def wants_probe(self, time: float) -> bool:
        """Whether to time a small exchange: this device stays local and nobody has told of the
        link for a while. Rate-limited by the pool itself: one device's probe answers for all."""
        part = self._parts.get("link")
        if part is None or self.table.probe is None:
            return False
        heard = self._state.synced_time[0, part.number]
        return bool(time - heard > self.policy.probe_after_s)

    def observe_probe(self, latency: float, time: float = 0.0) -> tuple[Upload, ...]:
        """Learn from a timed exchange of `table.probe`; it feeds the link part only."""
        part = self._parts["link"]
        part.accumulate(self._probe_row(part), latency, time)
        return (part.upload(time),) if part.in_flight is None else ()

    def _probe_row(self, part: _PartLearner) -> Array:
        row = np.zeros(self._state.rows.shape[2])
        probe = self.table.probe
        assert probe is not None  # wants_probe said so
        row[: len(probe)] = probe
        return row

    def adopt(self, download: Download) -> None:
        """Alg. 1 lines 11-12: estimate with what the server returned from now on."""
        part = self._parts.get(download.key.part)
        if part is None or part.key != download.key:
            raise ValueError(f"not a pool of this device: {download.key}")
        part.adopt(download)

    def acknowledge(self, download: Download) -> None:
        """Take note that an upload has arrived, without adopting the pool that came with it."""
        self._parts[download.key.part].acknowledge(download)

    def flush(self, time: float = 0.0) -> tuple[Upload, ...]:
        """Upload every shared part now, trigger or not; what is already on its way goes again."""
        shared = [part for part in self._parts.values() if part.part.shared]
        return tuple(part.in_flight or part.upload(time) for part in shared)

    # --- looking inside ---

    def pools(self) -> tuple[PoolKey, ...]:
        """The shared pools this device takes part in."""
        return tuple(part.key for part in self._parts.values() if part.part.shared)

    def pending(self) -> tuple[Upload, ...]:
        """Uploads made and not yet acknowledged; to be sent again after a failure."""
        return tuple(part.in_flight for part in self._parts.values() if part.in_flight is not None)

    def predictions(self) -> tuple[Array, Array]:
        """Expected latency and width of every choice, as the learner sees them now."""
        mean = np.zeros(self.table.choices) if self._known is None else self._known
        width = np.zeros(self.table.choices)
        if self._parts:
            learned = self._state.mean[0].sum(axis=0)
            physics = self._state.physics
            lowest = physics.low[0].sum(axis=0) if physics.used else self._optimistic(1.0)
            mean, width = mean + learned, learned - lowest
        return mean, width

    def records(self) -> tuple[PartRecord, ...]:
        """What to keep across a restart."""
        return tuple(part.record() for part in self._parts.values())

    def restore(self, records: Sequence[PartRecord]) -> None:
        """Go on from kept records; those of another model, table or policy are passed over."""
        for record in records:
            part = self._parts.get(record.key.part)
            if part is not None and part.key == record.key:
                part.restore(record)

    # --- inside ---

    def _unlearned(self, context: Context) -> int:
        """The choice of a policy that looks at nothing."""
        rows = list(range(self.table.choices))
        if context.allowed is not None:
            rows = [row for row in rows if context.allowed[row]]
        match self.policy.choose:
            case Choose.LOCAL:
                return rows[-1]
            case Choose.OFFLOAD:
                return rows[0]
            case _:
                return rows[int(context.uniform * len(rows))]

    def _scores(self, context: Context) -> Array:
        known = self._known if context.known is None else context.known
        if not self._parts:
            return np.zeros(self.table.choices) if known is None else known
        if self.policy.choose is Choose.SAMPLED:
            if context.normals is None:
                raise ValueError(f"policy {self.policy.name!r} needs normals in its context")
            scores = arithmetic.sampled(self._state, 0, context.normals)
        else:
            weight = exploration_weight(context.key_frame) if self.policy.key_frames else 1.0
            scores = self._optimistic(weight)
        return scores if known is None else scores + known

    def _optimistic(self, weight: float) -> Array:
        if self._state.physics.used:
            return physical.physical_scores(self._state, 0)
        state = self._state
        return arithmetic.optimistic(state.mean[0], state.norm[0], state.radius[0], weight)

    def _made(self, row: int, tied: bool, score: float | None = None) -> Choice:
        table = self.table
        if score is None:
            return Choice(row, table.point_of[row], table.codec_of[row], np.nan, 0.0, tied)
        predicted = score  # of the oracle, which neither learns nor was told: the truth
        if self._parts or self._known is not None:
            predicted = 0.0 if self._known is None else float(self._known[row])
            for part in range(len(self._parts)):
                predicted += float(self._state.mean[0, part, row])
        width = predicted - score
        return Choice(row, table.point_of[row], table.codec_of[row], predicted, width, tied)


def exploration_weight(key_frame: bool) -> float:
    """ANS: sqrt(1 - L), less exploration on key frames."""
    return float(np.sqrt(1.0 - (KEY_FRAME_WEIGHT if key_frame else OTHER_FRAME_WEIGHT)))


def fleet_state(
    table: PartitionTable,
    policy: Policy,
    hyperparameters: Hyperparameters,
    devices: int,
    radius: Mapping[str, Array | float] | None = None,
) -> LearnerState:
    """The empty state of one device, or of a simulated fleet of them."""
    parts = policy.parts or (Part("nothing", ("front",), Pool.DEVICE),)  # arrays need one part
    default = hyperparameters.beta_ms
    if policy.choose is Choose.SAMPLED:
        default = hyperparameters.sampling_ms
    if isinstance(default, str):
        if radius is None and policy.parts:
            raise ValueError("radius 'theory' must be computed by who knows the fleet")
        default = 0.0
    features = [table.columns(part.explains) for part in parts]
    return new_state(
        features,
        devices,
        uses_local=[part.uses_local or not part.shared for part in parts],
        radius=[(radius or {}).get(part.name, default) for part in parts],
        threshold=[_threshold(part, hyperparameters) for part in parts],
        half_life=[part.half_life_s for part in parts],
        ridge=hyperparameters.ridge if policy.ridge is None else policy.ridge,
        physics=_physics(policy, table, features, devices) if policy.physical else None,
    )


def _threshold(part: Part, hyperparameters: Hyperparameters) -> float:
    """Growth of log det beyond which a part is uploaded."""
    if not part.shared:
        return inf
    return -1.0 if part.eager else log1p(hyperparameters.alpha)


def _physics(
    policy: Policy, table: PartitionTable, features: Sequence[Array], devices: int
) -> Physics:
    rows = padded(features)
    parts, choices, width = rows.shape
    names = [part.name for part in policy.parts]
    both = "front" in names and "server" in names
    assert policy.physical is not None
    viable = viable_choices(table) if policy.physical.prune else np.ones(choices, dtype=np.bool_)
    return Physics(
        used=True,
        kappa=policy.physical.kappa,
        nonnegative=policy.physical.nonnegative,
        viable=viable,
        floor=np.array([floors(part) for part in rows]),
        dimension=np.array([each.shape[1] for each in features]),
        spread=np.array([part.spread for part in policy.parts]),
        front_part=names.index("front") if both else -1,
        server_part=names.index("server") if both else -1,
        own=np.zeros((devices, parts, statistics_size(width))),
        own_time=np.zeros((devices, parts)),
        pace=np.ones((devices, parts)),
        theta=np.zeros((devices, parts, width)),
        deviation=np.zeros((devices, parts)),
        low=np.zeros((devices, parts, choices)),
        stale=np.ones((devices, parts), dtype=np.bool_),
        estimated_at=np.zeros((devices, parts)),
    )


def offline_row(part: Part, table: PartitionTable, choice: int, width: int) -> Array:
    """The features of a partial local run: front columns as at the choice, all others zero."""
    columns = [getattr(table, segment)[choice] * (segment == "front") for segment in part.explains]
    row = np.zeros(width)
    row[: sum(map(len, columns))] = np.hstack(columns)
    return row


class _PartLearner:
    """One part of one device: its pool's name and its uploads."""

    def __init__(
        self, number: int, part: Part, learner: DeviceLearner, state: LearnerState
    ) -> None:
        self.number = number
        self.part = part
        self.state = state
        self.table = learner.table
        self.identity = learner.identity
        self.dimension = learner.table.columns(part.explains).shape[1]
        self.key = pool_key(part, learner.table, learner.policy, learner.identity)
        fleet_sync = learner.policy.fleet_sync
        self.fleet_threshold = learner.hyperparameters.fleet_threshold if fleet_sync else 0.0
        self.epoch = 0
        self.sequence = 0
        self.round = 0  # of the pool that was adopted last
        self.in_flight: Upload | None = None
        self.retired = SufficientStatistics.zero(self.dimension)
        arithmetic.estimate(state, 0, number)

    def read(self, holders: Array) -> SufficientStatistics:
        return SufficientStatistics.unpack(holders[0, self.number], self.dimension)

    def write(self, statistics: SufficientStatistics, holders: Array) -> None:
        holders[0, self.number] = statistics.pack(self.state.rows.shape[2])

    def start(self, offline: Sequence[tuple[int, float]]) -> Upload | None:
        # Alg. 1 line 2. What is pooled leaves the local buffer for good with sequence 0.
        if self.part.warm:
            width = self.state.rows.shape[2]
            for choice, latency in offline:
                self.accumulate(offline_row(self.part, self.table, choice, width), latency)
        if not self.part.shared:
            arithmetic.estimate(self.state, 0, self.number)
            return None
        return self.upload(0.0)

    def observe(self, choice: int, latency: float, time: float) -> None:
        state, number = self.state, self.number
        if state.physics.used:
            plain, slope = state.plain[number, choice], state.slope[number, choice]
            physical.learn(state, 0, number, plain, slope, latency, time)
        else:
            arithmetic.observe(state, 0, number, choice, latency)

    def accumulate(self, x: Array, latency: float, time: float = 0.0) -> None:
        """Take in an observation that is not of a choice: a partial local run, or a probe."""
        plain, slope = contributions(x)
        if self.state.physics.used:
            physical.learn(self.state, 0, self.number, plain, slope, latency, time)
        else:
            algebra.accumulate(self.state.local[0, self.number], plain, slope, latency)

    def wants_upload(self) -> bool:
        if self.in_flight is not None:
            return False
        if self.fleet_threshold:
            return arithmetic.wants_fleet_sync(self.state, 0, self.number, self.fleet_threshold)
        if self.state.gain[0, self.number] <= self.state.threshold[self.number]:
            return False
        return arithmetic.wants_upload(self.state, 0, self.number)

    def upload(self, time: float) -> Upload:
        arithmetic.snapshot(self.state, 0, self.number)
        self.in_flight = self._named(self.sequence, self.read(self.state.sent), time)
        self.sequence += 1
        return self.in_flight

    def _named(self, sequence: int, statistics: SufficientStatistics, time: float) -> Upload:
        who = self.identity
        return Upload(who.device, who.incarnation, self.key, self.epoch, sequence, statistics, time)

    def adopt(self, download: Download) -> None:
        self.acknowledge(download)
        if download.epoch < self.epoch:
            return  # an old pool that was overtaken by a reset
        if download.epoch > self.epoch:
            self._retire()
            self.epoch = download.epoch
            if self.state.physics.used:  # the device's own past belongs to the ended epoch too
                self.state.physics.own[0, self.number] = 0.0
                self.state.physics.pace[0, self.number] = 1.0
        elif download.round < self.round:
            return  # overtaken by a fresher download; its acknowledgement still counted
        self.round = download.round
        self._use(download.statistics, download.time)

    def _use(self, pool: SufficientStatistics, time: float) -> None:
        arithmetic.adopt(self.state, 0, self.number, pool.pack(self.state.rows.shape[2]), time)

    def acknowledge(self, download: Download) -> None:
        if self.in_flight is not None and download.acknowledged == self.in_flight.sequence:
            arithmetic.acknowledged(self.state, 0, self.number)
            self.in_flight = None

    def _retire(self) -> None:
        # What is in the buffer was observed for an epoch that the server has ended. What is on
        # its way stays there: the server retires it when it arrives.
        buffered = self.read(self.state.local)
        kept = SufficientStatistics.zero(self.dimension)
        if self.in_flight is not None:
            kept = self.in_flight.statistics
        self.retired += buffered - kept
        self.write(kept, self.state.local)

    def record(self) -> PartRecord:
        physics = self.state.physics
        return PartRecord(
            self.key,
            self.epoch,
            self.sequence,
            self.read(self.state.synced),
            self.read(self.state.local),
            None if self.in_flight is None else self.in_flight.statistics,
            self.retired,
            None if self.in_flight is None else self.in_flight.epoch,
            float(self.state.synced_time[0, self.number]),
            0.0 if self.in_flight is None else self.in_flight.time,
            float(physics.own_time[0, self.number]) if physics.used else 0.0,
            self.read(physics.own) if physics.used else None,
        )

    def restore(self, record: PartRecord) -> None:
        self.epoch, self.sequence, self.retired = record.epoch, record.sequence, record.retired
        self.write(record.local, self.state.local)
        self.in_flight = None
        if record.sent is not None:
            self.write(record.sent, self.state.sent)
            upload = self._named(self.sequence - 1, record.sent, record.sent_time)
            # Sent before a reset that this device has since heard of: still of the older epoch.
            epoch = record.epoch if record.sent_epoch is None else record.sent_epoch
            self.in_flight = replace(upload, epoch=epoch)
        physics = self.state.physics
        if physics.used and record.own is not None:
            self.write(record.own, physics.own)
            physics.own_time[0, self.number] = record.own_time
        self._use(record.synced, record.synced_time)


def pool_key(
    part: Part, table: PartitionTable, policy: Policy, identity: DeviceIdentity
) -> PoolKey:
    """The pool that this device's observations of a part belong to."""
    scope = {
        Pool.DEVICE: f"device:{identity.device}",
        Pool.GROUP: f"group:{identity.type}",
        Pool.NETWORK: f"network:{identity.network}",
        Pool.EVERYONE: "everyone",
    }[part.pool]
    return PoolKey(table.digest or table.model, table.version, policy.name, part.name, scope)
