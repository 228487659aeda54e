"""One part of one device: its records, its pool's name, and its uploads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from cans.learning.arithmetic import exchange, linear, observing, pooling
from cans.learning.arithmetic.arrays import Array, LearnerState, contributions
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
        booked: bool = False,
    ) -> None:
        """`booked`: somebody else observes for the pool; what is observed here counts until it is
        heard of from there."""
        self.booked = booked
        self.number = number
        self.part = part
        self.state = state
        self.table = table
        self.identity = identity
        self.dimension = table.columns(part.explains).shape[1]
        self.key = pool_key(part, table, policy, identity)
        self.fleet_threshold = hyperparameters.fleet_threshold if policy.fleet_sync else 0.0
        self.sequence = 0
        self.in_flight: Upload | None = None
        self._measured = self._told = 0.0  # squared latencies of the buffer, and over the pace
        if not state.physics.used:
            linear.estimate(state, 0, number)

    @property
    def epoch(self) -> int:
        return int(self.state.epoch[0, self.number])

    def read(self, holders: Array, of_choices: Array) -> SufficientStatistics:
        sums = of_choices[0, self.number] if self.part_bends else None
        return SufficientStatistics.unpack(holders[0, self.number], self.dimension, sums)

    def write(self, statistics: SufficientStatistics, holders: Array, of_choices: Array) -> None:
        holders[0, self.number] = statistics.pack(self.state.rows.shape[2])
        if self.part_bends:
            of_choices[0, self.number] = statistics.of_choices(self.state.rows.shape[1])

    @property
    def part_bends(self) -> bool:
        """Whether sums of every choice are kept beside those of the line."""
        return bool(self.state.choices.bends[self.number])

    # --- observing ---

    def start(self, offline: Sequence[tuple[int, float]]) -> Upload | None:
        # Alg. 1 line 2. What is pooled leaves the local buffer for good with sequence 0.
        if self.part.warm:
            width = self.state.rows.shape[2]
            for choice, latency in offline:
                self.accumulate(offline_row(self.part, self.table, choice, width), latency, choice)
        if self.booked or not self.part.shared:
            if not self.state.physics.used:
                linear.estimate(self.state, 0, self.number)
            return None
        return self.upload()

    def observe(self, choice: int, latency: float, time: float) -> None:
        state, number = self.state, self.number
        state.heard[0, number] = max(time, state.heard[0, number])
        if state.physics.used:
            before = state.local[0, number, -3]
            observing.observe_physically(state, 0, number, choice, latency)
            self._note_pace(before)
        else:
            linear.observe(state, 0, number, choice, latency)

    def observe_hang(self, choice: int, latency: float, time: float) -> None:
        """Take in what this part took while its server hung. That is no property of the choice: it
        counts in the line, and as a sign of a change, and not in the average of the choice."""
        if not self.state.physics.used:
            self.observe(choice, latency, time)
            return
        self.state.heard[0, self.number] = max(time, self.state.heard[0, self.number])
        self.accumulate(self.state.rows[self.number, choice], latency)

    def accumulate(self, x: Array, latency: float, choice: int = -1) -> None:
        """Take in what is no inference: a partial local run up to a choice, or a probe."""
        at_zero, per_ms = contributions(x)
        if self.state.physics.used:
            before = self.state.local[0, self.number, -3]
            observing.learn(self.state, 0, self.number, at_zero, per_ms, latency, choice)
            self._note_pace(before)
        else:
            linear.accumulate(self.state.local[0, self.number], at_zero, per_ms, latency)
        self.state.gain[0, self.number] = np.inf  # how much it teaches has to be computed

    def _note_pace(self, before: float) -> None:
        """An observation has entered the buffer, whose sum of squares was this before."""
        told = self.state.local[0, self.number, -3] - before
        self._told += told
        self._measured += told * self.state.physics.divisor[0, self.number] ** 2

    # --- uploading ---

    def wants_upload(self) -> bool:
        if self.in_flight is not None or self.booked:
            return False
        if self.fleet_threshold:
            return linear.wants_fleet_sync(self.state, 0, self.number, self.fleet_threshold)
        return self.part.shared and exchange.upload_is_due(self.state, 0, self.number)

    def rides(self, choice: int) -> bool:
        """Whether what was observed of a choice goes along with an upload of another part."""
        free = self.in_flight is None and not self.booked
        return free and exchange.rides(self.state, self.number, choice)

    def upload(self, whole: bool = False) -> Upload:
        """What is to be told now; `whole`: all there is, what is surprising not alone."""
        if whole:
            self.state.startling[0, self.number] = 0.0
        pooling.send(self.state, 0, self.number)
        sent = self.read(self.state.sent, self.state.choices.sent)
        self.in_flight = self._named(self.sequence, sent, self._pace_of(sent))
        self.sequence += 1
        return self.in_flight

    def _pace_of(self, sent: SufficientStatistics) -> float:
        """What the latencies of an upload were divided by: of all there is, the root mean square of
        what it was while they were observed; of a surprise, which goes alone, what it is now."""
        if not self.state.physics.used:
            return 1.0
        everything = sent.count == round(self.state.local[0, self.number, -1])
        if not everything or self._told <= 0.0:
            return float(self.state.physics.divisor[0, self.number])
        pace = sqrt(self._measured / self._told)
        self._measured = self._told = 0.0
        return pace

    def _named(self, sequence: int, statistics: SufficientStatistics, pace: float = 1.0) -> Upload:
        who = self.identity
        return Upload(who.device, who.incarnation, self.key, self.epoch, sequence, statistics, pace)

    # --- adopting ---

    def adopt(self, download: Download) -> None:
        if self._arrived(download):
            pooling.acknowledge(self.state, 0, self.number)
        pool = download.statistics.pack(self.state.rows.shape[2])
        version = download.epoch, download.round
        state, number = self.state, self.number
        if download.epoch > self.epoch:  # what is in the buffer ends with it
            self._measured = self._told = 0.0
        if self.booked and version > (state.epoch[0, number], state.round[0, number]):
            state.local[0, number] = state.sent[0, number]  # it is in there, as the other saw it
            if self.part_bends:
                state.choices.local[0, number] = state.choices.sent[0, number]
        known = state.rows.shape[1] if self.part_bends else 0
        choices = download.statistics.of_choices(known)
        pooling.take_in(self.state, 0, self.number, pool, *version, download.time, choices)

    def confirm(self, download: Download) -> None:
        """Take note that an upload has arrived, without adopting the pool it went into."""
        if self._arrived(download):
            version = download.epoch, download.round
            pooling.confirm(self.state, 0, self.number, *version, download.time)

    def _arrived(self, download: Download) -> bool:
        """Whether this answers the upload on its way, which then is no longer."""
        if self.in_flight is None or download.acknowledged != self.in_flight.sequence:
            return False
        self.in_flight = None
        return True

    # --- keeping ---

    def record(self) -> PartRecord:
        state = self.state
        return PartRecord(
            self.key,
            self.epoch,
            self.sequence,
            self.read(state.synced, state.choices.synced),
            self.read(state.local, state.choices.local),
            None if self.in_flight is None else self.in_flight.statistics,
            self.read(state.retired, state.choices.retired),
            None if self.in_flight is None else self.in_flight.epoch,
            float(state.heard[0, self.number]),
            self.read(state.physics.own, state.choices.own) if state.physics.used else None,
        )

    def restore(self, record: PartRecord) -> None:
        state = self.state
        state.epoch[0, self.number], self.sequence = record.epoch, record.sequence
        state.round[0, self.number] = 0
        choices = state.choices
        self.write(record.retired, state.retired, choices.retired)
        self.write(record.local, state.local, choices.local)
        nothing = SufficientStatistics.zero(self.dimension)
        self.write(record.sent or nothing, state.sent, choices.sent)
        self.in_flight = None
        if record.sent is not None:
            upload = self._named(self.sequence - 1, record.sent)
            # Sent before a reset that this device has since heard of: still of the older epoch.
            epoch = record.epoch if record.sent_epoch is None else record.sent_epoch
            self.in_flight = replace(upload, epoch=epoch)
        if state.physics.used and record.own is not None:
            self.write(record.own, state.physics.own, choices.own)
        self.write(record.synced, state.synced, choices.synced)
        pool = record.synced.pack(state.rows.shape[2])
        linear.adopt(state, 0, self.number, pool, record.synced_time)


def offline_row(part: Part, table: PartitionTable, choice: int, width: int) -> Array:
    """The features of a partial run by oneself, up to a choice, or, of a server, from there on:
    the columns of what was run as at the choice, all others zero."""
    ran = "server" if part.explains == ("server",) else "front"
    columns = [getattr(table, segment)[choice] * (segment == ran) for segment in part.explains]
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
