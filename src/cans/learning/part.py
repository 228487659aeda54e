"""One part of one device: its records, its pool's name, and its uploads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cans.learning import linear, physical
from cans.learning.arrays import Array, LearnerState, contributions
from cans.learning.messages import DeviceIdentity, Download, PoolKey, Upload
from cans.learning.policies import Hyperparameters, Part, Policy, Pool
from cans.learning.statistics import SufficientStatistics
from cans.learning.table import PartitionTable


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
    own: SufficientStatistics | None = None  # what this device observed itself, for its pace


class PartLearner:
    """One part of one device: its pool's name and its uploads."""

    def __init__(
        self,
        number: int,
        part: Part,
        table: PartitionTable,
        policy: Policy,
        identity: DeviceIdentity,
        hyperparameters: Hyperparameters,
        state: LearnerState,
    ) -> None:
        self.number = number
        self.part = part
        self.state = state
        self.table = table
        self.identity = identity
        self.dimension = table.columns(part.explains).shape[1]
        self.key = pool_key(part, table, policy, identity)
        self.fleet_threshold = hyperparameters.fleet_threshold if policy.fleet_sync else 0.0
        self.epoch = 0
        self.sequence = 0
        self.round = 0  # of the pool that was adopted last
        self.in_flight: Upload | None = None
        self.retired = SufficientStatistics.zero(self.dimension)
        if not state.physics.used:
            linear.estimate(state, 0, number)

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
            linear.estimate(self.state, 0, self.number)
            return None
        return self.upload()

    def observe(self, choice: int, latency: float) -> None:
        state, number = self.state, self.number
        if state.physics.used:
            at_zero, per_ms = state.sums_at_zero[number, choice], state.sums_per_ms[number, choice]
            physical.learn(state, 0, number, at_zero, per_ms, latency)
        else:
            linear.observe(state, 0, number, choice, latency)

    def accumulate(self, x: Array, latency: float) -> None:
        """Take in an observation that is not of a choice: a partial local run, or a probe."""
        at_zero, per_ms = contributions(x)
        if self.state.physics.used:
            physical.learn(self.state, 0, self.number, at_zero, per_ms, latency)
        else:
            linear.accumulate(self.state.local[0, self.number], at_zero, per_ms, latency)

    def wants_upload(self) -> bool:
        if self.in_flight is not None:
            return False
        if self.fleet_threshold:
            return linear.wants_fleet_sync(self.state, 0, self.number, self.fleet_threshold)
        if self.state.gain[0, self.number] <= self.state.threshold[self.number]:
            return False
        return linear.wants_upload(self.state, 0, self.number)

    def upload(self) -> Upload:
        linear.snapshot(self.state, 0, self.number)
        self.in_flight = self._named(self.sequence, self.read(self.state.sent))
        self.sequence += 1
        return self.in_flight

    def _named(self, sequence: int, statistics: SufficientStatistics) -> Upload:
        who = self.identity
        return Upload(who.device, who.incarnation, self.key, self.epoch, sequence, statistics)

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
        linear.adopt(self.state, 0, self.number, pool.pack(self.state.rows.shape[2]), time)

    def acknowledge(self, download: Download) -> None:
        if self.in_flight is not None and download.acknowledged == self.in_flight.sequence:
            linear.acknowledged(self.state, 0, self.number)
            self.in_flight = None

    def credit(self, download: Download) -> None:
        """As `acknowledge`, for who does not adopt the pool now: our copy of it has the upload too,
        unless it is newer than that, or of another epoch."""
        arrived = self.in_flight is not None and download.acknowledged == self.in_flight.sequence
        self.acknowledge(download)
        same = download.epoch == self.epoch and download.round > self.round
        if arrived and same and self.state.physics.used:
            physical.credit(self.state, 0, self.number, download.time)

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
            self.read(physics.own) if physics.used else None,
        )

    def restore(self, record: PartRecord) -> None:
        self.epoch, self.sequence, self.retired = record.epoch, record.sequence, record.retired
        self.write(record.local, self.state.local)
        self.in_flight = None
        if record.sent is not None:
            self.write(record.sent, self.state.sent)
            upload = self._named(self.sequence - 1, record.sent)
            # Sent before a reset that this device has since heard of: still of the older epoch.
            epoch = record.epoch if record.sent_epoch is None else record.sent_epoch
            self.in_flight = replace(upload, epoch=epoch)
        physics = self.state.physics
        if physics.used and record.own is not None:
            self.write(record.own, physics.own)
        self._use(record.synced, record.synced_time)


def offline_row(part: Part, table: PartitionTable, choice: int, width: int) -> Array:
    """The features of a partial local run: front columns as at the choice, all others zero."""
    columns = [getattr(table, segment)[choice] * (segment == "front") for segment in part.explains]
    row = np.zeros(width)
    row[: sum(map(len, columns))] = np.hstack(columns)
    return row


def observable(part: Part, table: PartitionTable) -> Array:
    """Features of all that a part can observe: the choices, and exchanges of any size that are
    timed for their own sake."""
    rows = table.columns(part.explains)
    if part.explains != ("link",) or table.probe is None:
        return rows
    return np.vstack([rows, table.probe])


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
