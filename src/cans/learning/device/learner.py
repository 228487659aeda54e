"""`DeviceLearner`: one device's side of every policy. Three verbs: select, observe, adopt."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from weakref import WeakKeyDictionary

import numpy as np

from cans.learning.arithmetic import choosing, linear, scoring
from cans.learning.arithmetic.arrays import Array, BoolArray, LearnerState
from cans.learning.arithmetic.layout import exploration_weight, fleet_state, take_rows
from cans.learning.choice import Choice, Context, Latencies
from cans.learning.device.crowd import Crowd
from cans.learning.device.part import PartLearner, PartRecord
from cans.learning.device.trials import Trials
from cans.learning.grouping import outgrown
from cans.learning.messages import DeviceIdentity, Download, PoolKey, Upload
from cans.learning.policies import Choose, Hyperparameters, Policy
from cans.learning.statistics import SufficientStatistics
from cans.learning.table import PartitionTable

NOTHING_SPECIAL = Context()
_NOBODY_ASKED = np.zeros(0, dtype=np.bool_)
_NO_NORMALS = np.zeros(0)

LASTING = 20.0
"""Observations of its own that a device must have made at its present pace to be another one."""


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
        booked: Collection[str] = (),
    ) -> None:
        """`booked` are parts whose pools are fed by somebody else: nothing is uploaded to them."""
        self.table = table
        self.policy = policy
        self.identity = identity or DeviceIdentity("device")
        self.hyperparameters = hyperparameters or Hyperparameters()
        if policy.knows and not policy.truth and known is None:
            raise ValueError(f"policy {policy.name!r} needs the known latency of every choice")
        self._known = known
        self._full = table  # of the largest input, where sizes vary
        self._radius = radius
        # Of tables as long as somebody keeps them: rows of sizes that come again are not made anew.
        self._rows_of: WeakKeyDictionary[PartitionTable, LearnerState] = WeakKeyDictionary()
        self._state = fleet_state(table, policy, self.hyperparameters, 1, radius)
        self._parts: dict[str, PartLearner] = {
            part.name: PartLearner(
                number,
                part,
                table,
                policy,
                self.identity,
                self.hyperparameters,
                self._state,
                part.name in booked,
            )
            for number, part in enumerate(policy.parts)
        }
        self.crowd = Crowd(table, policy, self._state, self._parts, self.get_ready)
        self.trials = Trials(table, policy, self._state, self._parts, self.get_ready)
        self._how = list(Choose).index(policy.choose)  # as `choosing.py` counts
        self._allowed: BoolArray | None = None  # when last something was not, and the scores then
        self._allowed_scores: Array | None = None
        self._frame = 0
        self.tied = 0  # how many choices were ties

    # --- join ---

    def join(self, offline: Sequence[tuple[int, float]] = ()) -> tuple[Upload, ...]:
        """Take in offline experience, (choice, front latency in ms) each; returns sequence 0 of
        each shared part, for the server. What is pooled comes back with the first download."""
        fresh = [part for part in self._parts.values() if part.sequence == 0]  # others have joined
        started = (part.start(offline) for part in fresh)
        return tuple(upload for upload in started if upload is not None)

    def use_rows(self, table: PartitionTable) -> None:
        """Choose and learn by the features of another size of input from now on. The choices and
        columns are the same and on one scale, so what is known, per unit of work, holds on."""
        if table is self.table:
            return
        rows = self._rows_of.get(table)
        if rows is None:
            rows = self._rows_of[table] = fleet_state(
                table, self.policy, self.hyperparameters, 1, self._radius
            )
        self.table = table
        take_rows(self._state, rows)
        self.trials.use_rows(table)
        if self._state.physics.used:
            self.get_ready()
        else:
            for part in self._parts.values():
                linear.estimate(self._state, 0, part.number)

    # --- the three verbs ---

    def get_ready(self) -> None:
        """Estimate anew what has changed, ahead of the next choice: whoever waits for that choice
        need not wait for this."""
        if self._state.physics.used and scoring.refresh(self._state, 0):
            self._allowed_scores = None
            if self._allowed is not None:
                self._scores_among(self._allowed)

    def select(self, context: Context | None = None) -> Choice:
        """Alg. 1 line 4: the choice of the lowest optimistic latency (Eq. 3)."""
        context = context or NOTHING_SPECIAL
        self._frame += 1
        self.get_ready()
        how, allowed = self._how, context.allowed
        if how > choosing.SAMPLED:
            everything = np.ones(self.table.choices, dtype=np.bool_)
            allowed = everything if allowed is None else allowed
            return self._made(choosing.choose_blindly(how, allowed, context.uniform), False)
        charge = self.crowd.charge(context.load, context.toll)
        scores = self._scores(context, charge)
        forced = self.policy.forced_sampling and choosing.must_not_stay_local(self._frame)
        restricted = allowed is not None
        index, tied = choosing.choose_lowest(
            scores, allowed if allowed is not None else _NOBODY_ASKED, restricted, forced
        )
        self.tied += tied
        fees = np.zeros(self.table.choices) if charge is None else charge.sum(axis=0)
        if charge is not None:
            index = self.crowd.settled(index, scores, fees, context)
        among = allowed if allowed is not None else _NOBODY_ASKED
        other = choosing.glance(self._state, 0, index, among, restricted, fees)
        score = float(scores[other])
        if score == inf:  # it was left out: its bound is no score
            score = float(self._state.physics.low[0, :, other].sum() + fees[other])
        made = self._made(other, tied, score)._replace(looked=other != index)
        return made if charge is None else self.crowd.charged(made, charge, context.load)

    def observe(
        self, choice: Choice | int, latencies: Latencies, time: float = 0.0, hung: bool = False
    ) -> tuple[Upload, ...]:
        """Alg. 1 lines 7-9: learn from one round; returns the uploads that it triggers. `hung`:
        what the link took is how long the server hung."""
        for value in latencies:
            if value is not None and not -inf < value < inf:
                raise ValueError(f"latencies must be finite numbers, not {latencies}")
        index = choice if isinstance(choice, int) else choice.row
        if latencies.server is not None:
            self.trials.note_server(index, latencies.server, time)
        heard = []
        for part in self._parts.values():
            latency = latencies.of(part.part.explains)
            if latency is None:
                continue
            if self._state.informative[part.number, index]:
                if hung and part.part.explains == ("link",):
                    part.observe_hang(index, latency, time)
                else:
                    part.observe(index, latency, time)
            elif self._state.events[part.number]:
                continue  # that its pool has grown meanwhile is no reason to tell of it
            heard.append(part)
        if latencies.front is not None:
            self.trials.note_front(index, time)
        due = [part for part in heard if part.wants_upload()]
        if not due:
            return ()
        return tuple(part.upload() for part in heard if part in due or part.rides(index))

    def observe_probe(
        self, latencies: Sequence[float], time: float = 0.0, tell: bool = False
    ) -> tuple[Upload, ...]:
        """Learn from timed exchanges, the first ones of `table.probe`; they feed the link part
        only, and nothing if this policy has none. `tell`: upload them in any case, judged by what
        is known already."""
        if not all(-inf < latency < inf for latency in latencies):
            raise ValueError(f"latencies must be finite numbers, not {latencies}")
        part, probe = self._parts.get("link"), self.table.probe
        if part is None or probe is None:
            return ()
        if tell:
            self.get_ready()
        for features, latency in zip(probe, latencies, strict=False):
            row = np.zeros(self._state.rows.shape[2])
            row[: len(features)] = features
            part.accumulate(row, latency)
        self._state.heard[0, part.number] = max(time, self._state.heard[0, part.number])
        told = tell and part.part.shared and part.in_flight is None
        return (part.upload(whole=told),) if told or part.wants_upload() else ()

    def adopt(self, download: Download) -> None:
        """Alg. 1 lines 11-12: estimate with what the server returned from now on."""
        part = self._parts.get(download.key.part)
        if part is None or part.key != download.key:
            raise ValueError(f"not a pool of this device: {download.key}")
        part.adopt(download)

    def acknowledge(self, download: Download) -> None:
        """Take note that an upload has arrived, without adopting the pool it went into."""
        self._parts[download.key.part].confirm(download)

    def flush(self) -> tuple[Upload, ...]:
        """Upload every shared part now, trigger or not; what is already on its way goes again."""
        shared = [part for part in self._parts.values() if part.part.shared and not part.booked]
        return tuple(part.in_flight or part.upload() for part in shared)

    # --- looking inside ---

    @property
    def outgrown(self) -> bool:
        """Whether this device's own front-end runs at another pace than its group's, and not only
        for a moment: as little of the difference as is left when it is shrunk towards the group
        must be large."""
        part, physics = self._parts.get("front"), self._state.physics
        if part is None or not physics.used or part.part.spread == 0.0:
            return False
        self.get_ready()
        lasting = physics.own[0, part.number, -2] >= LASTING
        return bool(lasting and outgrown(float(physics.pace[0, part.number])))

    @property
    def whole_ms(self) -> float:
        """What the whole model takes on this device, by the present estimate, for the largest
        input; 0: not known."""
        part = self._parts.get("front")
        self.use_rows(self._full)
        return 0.0 if part is None else float(self._state.mean[0, part.number, -1])

    def pools(self) -> tuple[PoolKey, ...]:
        """The shared pools this device takes part in."""
        return tuple(part.key for part in self._parts.values() if part.part.shared)

    def own(self, key: PoolKey) -> SufficientStatistics | None:
        """What this device has measured itself of a pool that is watched; None: it is not."""
        part, physics = self._parts.get(key.part), self._state.physics
        if part is None or part.key != key or not physics.used or not part.part.watched:
            return None
        return part.read(physics.own, self._state.choices.own)

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
            lowest = physics.low[0].sum(axis=0) if physics.used else self._optimistic()
            mean, width = mean + learned, learned - lowest
        return mean, width

    def bottlenecks(self) -> Array | None:
        """Lower confidence bound of the slowest of front-end, link and server for every choice, in
        milliseconds; None: this policy does not tell them apart. Of the link only what grows with
        the bytes: while one request waits for the round trip others travel."""
        if not any(part.part.explains == ("front",) for part in self._parts.values()):
            return None
        self.get_ready()
        state, physics = self._state, self._state.physics
        low = physics.low[0] if physics.used else (
            state.mean[0] - state.radius[0][:, None] * state.norm[0]
        )  # fmt: skip
        low = np.array(low)
        link = self._parts.get("link")
        names = self.table.names.get("link", ())
        if link is not None and physics.used and "intercept" in names:
            column = names.index("intercept")
            fixed = physics.theta[0, link.number, column] * state.rows[link.number, :, column]
            low[link.number] -= fixed
        return np.asarray(np.maximum(low, 0.0).max(axis=0))

    def part_predictions(self, name: str) -> tuple[Array, Array]:
        """The same for one part alone."""
        number, state = self._parts[name].number, self._state
        mean = state.mean[0, number]
        if state.physics.used:
            return mean, mean - state.physics.low[0, number]
        return mean, state.radius[0, number] * state.norm[0, number]

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

    def _optimistic(self) -> Array:
        state = self._state
        return linear.optimistic(state.mean[0], state.norm[0], state.radius[0], 1.0)

    def _scores(self, context: Context, charge: Array | None) -> Array:
        known = self._known if context.known is None else context.known
        if not self._parts:
            return np.zeros(self.table.choices) if known is None else known
        if self._how == choosing.SAMPLED and context.normals is None:
            raise ValueError(f"policy {self.policy.name!r} needs normals in its context")
        if charge is not None:
            offered = self._state.physics.offered
            among = offered if context.allowed is None else context.allowed
            scores = scoring.charged_scores(self._state, 0, charge.sum(axis=0), among)
        else:
            weight = exploration_weight(context.key_frame) if self.policy.key_frames else 1.0
            normals = _NO_NORMALS if context.normals is None else context.normals
            scores = choosing.learned_scores(
                self._state, 0, self._how, weight, normals, _NOBODY_ASKED, False
            )
            physics, allowed = self._state.physics, context.allowed
            if physics.used and allowed is not None and choosing.leaves_out(self._state, allowed):
                scores = self._scores_among(allowed)
            else:
                self._allowed = None
        return scores if known is None else scores + known

    def _scores_among(self, allowed: BoolArray) -> Array:
        """The scores where only these choices are allowed. Mostly they are those that were allowed
        before, so that nobody has to wait for it."""
        before = self._allowed
        if self._allowed_scores is None or before is None or not np.array_equal(allowed, before):
            nothing = np.zeros(self.table.choices)
            self._allowed = allowed.copy()
            self._allowed_scores = scoring.charged_scores(self._state, 0, nothing, self._allowed)
        return self._allowed_scores

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
