"""What a device has learned and not yet handed on, kept on its disk as it changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from cans.errors import CansError, Refused, RemoteProtocolError
from cans.learning import (
    Choice,
    DeviceIdentity,
    DeviceLearner,
    Download,
    Latencies,
    PartitionTable,
    PoolKey,
    SufficientStatistics,
    Upload,
)
from cans.learning.device.part import pool_key
from cans.learning.plausibility import contradicted
from cans.live.device.start.statefile import StateWriter
from cans.live.device.timing import believable
from cans.live.split import SplitModel
from cans.live.wire.accuracy import Compared
from cans.live.wire.messages import PoolUpdate, Welcome
from cans.live.wire.state import DeviceState, RefusedUploads
from cans.live.wire.terms import Terms

_log = logging.getLogger(__name__)
Version = tuple[int, int]
_LARGEST = 1e24  # in a pool: the square of a day in milliseconds, 1e8 times


class Experience:
    """The learner of a device, under the terms of its server. Used by one thread."""

    def __init__(self, state: DeviceState, writer: StateWriter, model: SplitModel) -> None:
        self._state = state
        self._writer = writer
        self._model = model
        self.terms: Terms | None = None
        self.compared: tuple[Compared, ...] = ()  # what the fleet found of lossy choices
        self.learner: DeviceLearner | None = None
        self._together = self._lasting = False  # inside `one_commit`, and what it has to do
        self._booked = False  # the server times itself
        self._group = ""  # that the server found; empty: none, the type counts
        self._dimensions: dict[PoolKey, int] = {}
        self.known: dict[PoolKey, Version] = {}  # the pools adopted last
        self._contradicted: set[PoolKey] = set()  # those that are not believed
        if state.welcome:
            self._resume()

    @property
    def state(self) -> DeviceState:
        return self._state

    # --- terms ---

    def _resume(self) -> None:
        """Go on under the terms of last time, before any server has been reached."""
        try:
            self.accept(Welcome.from_bytes(self._state.welcome))
        except CansError as error:
            _log.warning("kept terms cannot be used", extra={"reason": str(error)})

    def accept(self, welcome: Welcome) -> None:
        """Learn under a server's terms. What was learned under others is kept apart."""
        terms, table = welcome.terms, welcome.table
        check_table(table, self._model)
        if not welcome.group:  # a server without its store cannot tell: it is as before
            welcome = replace(welcome, group=self._group if terms.policy.grouped else "")
        booked = welcome.books_server
        if not self._same(terms, table) or (welcome.group, booked) != (self._group, self._booked):
            self._group, self._booked = welcome.group, booked
            self._begin(terms, table)
        self.compared = welcome.compared
        self.adopt(welcome.pools)
        self._state = replace(self._state, welcome=welcome.without_pools().to_bytes())

    def _same(self, terms: Terms, table: PartitionTable) -> bool:
        return (
            self.learner is not None
            and self.terms == terms
            and self.learner.table.version == table.version
        )

    @property
    def learning_identity(self) -> DeviceIdentity:
        """Who this device is to its pools: of the group that the server found."""
        who = self._state.identity
        return who._replace(type=self._group or who.type)

    @property
    def outgrown(self) -> bool:
        """Whether this device has become another machine than its group knows."""
        return bool(self._group) and self.learner is not None and self.learner.outgrown

    @property
    def whole_ms(self) -> float:
        """What the whole model takes on this device, by the present estimate."""
        return 0.0 if self.learner is None else self.learner.whole_ms

    def _begin(self, terms: Terms, table: PartitionTable) -> None:
        identity = self.learning_identity
        before = self.learner.records() if self.learner else self._state.records
        booked = [part.name for part in terms.policy.of_server if self._booked]
        self.learner = DeviceLearner(
            table, terms.policy, identity, terms.hyperparameters, booked=booked
        )
        self.terms = terms
        ours = {each.key for each in self.learner.records()}
        kept = [each for each in (*before, *self._state.former) if each.key in ours]
        left = [each for each in (*before, *self._state.former) if each.key not in ours]
        self.learner.restore(kept)
        shared = [part for part in terms.policy.parts if part.shared]
        self._dimensions = {
            pool_key(part, table, terms.policy, identity): table.columns(part.explains).shape[1]
            for part in shared
        }
        self.known = dict.fromkeys(self._dimensions, (0, 0))
        joined = self._state.joined if before else False
        self._state = replace(
            self._state, former=tuple(left), joined=joined and len(kept) == len(ours)
        )

    # --- offline experience ---

    @property
    def needs_offline(self) -> bool:
        return self.learner is not None and not self._state.joined

    def start(self, offline: Sequence[tuple[int, float]]) -> tuple[Upload, ...]:
        """Begin with offline experience: (choice, front milliseconds) each."""
        assert self.learner is not None
        uploads = self.learner.join([each for each in offline if self._believes(each[1])])
        self._state = replace(self._state, joined=True)
        self._keep(lasting=True)
        return uploads

    # --- the verbs ---

    def use_rows(self, rows: PartitionTable | None) -> None:
        """Choose, explain and learn by these from now on; None: the size never varies."""
        if (
            rows is not None
            and self.learner is not None
            and rows.version == self.learner.table.version
        ):
            self.learner.use_rows(rows)

    def observe(
        self, choice: Choice, latencies: Latencies, time: float, hung: bool = False
    ) -> tuple[Upload, ...]:
        """Learn from a round and commit it; the uploads it triggers may be sent then. A latency
        that cannot be believed is taken as one that was not measured."""
        uploads = self._learn(choice, latencies, time, hung)
        self.answered(lasting=bool(uploads))
        return uploads

    def _learn(
        self, choice: Choice, latencies: Latencies, time: float, hung: bool = False
    ) -> tuple[Upload, ...]:
        assert self.learner is not None
        believed = Latencies(*(ms if self._believes(ms) else None for ms in latencies))
        learned = any(ms is not None for ms in believed)
        self._state = replace(self._state, observations=self._state.observations + learned)
        return self.learner.observe(choice, believed, time, hung)

    def observe_work(self, choice: Choice, latencies: Latencies, time: float) -> tuple[Upload, ...]:
        """Learn from work that was sent for the server's sake: no inference of the user's."""
        uploads = self._learn(choice, latencies, time)
        self._keep(lasting=bool(uploads))
        return uploads

    def observe_wait(self, choice: Choice, waited_ms: float) -> None:
        """How long a request waited for a worker, beside what was assumed."""
        if self.learner is not None:
            self.learner.crowd.observe_wait(choice, waited_ms)

    def wants_probe(self, time: float) -> bool:
        return self.learner is not None and self.learner.trials.wants_probe(time)

    def wants_all_probes(self) -> bool:
        return self.learner is not None and self.learner.trials.wants_all_probes()

    def observe_probe(self, milliseconds: Sequence[float], time: float) -> tuple[Upload, ...]:
        """Learn of the link from exchanges that were timed for their own sake."""
        assert self.learner is not None
        if not milliseconds or not all(map(self._believes, milliseconds)):
            return ()
        # The first word of a device that arrives: what it measured before it believed anybody.
        arrived = len(milliseconds) > 1
        uploads = self.learner.observe_probe(milliseconds, time, tell=arrived)
        self._keep(lasting=bool(uploads))
        return uploads

    def _believes(self, milliseconds: float | None) -> bool:
        assert self.terms is not None
        return believable(milliseconds, self.terms.limits)

    def answered(self, count: int = 1, lasting: bool = False) -> None:
        self._state = replace(self._state, inferences=self._state.inferences + count)
        self._keep(lasting)

    def adopt(self, pools: Iterable[PoolUpdate]) -> None:
        """Take over pools; whatever is not one of ours is passed over."""
        if self.learner is None:
            return
        for download, refused in pools:
            try:
                self._check(download.key, download.statistics)
            except RemoteProtocolError as error:
                _log.warning("pool passed over", extra={"reason": str(error)})
                continue
            if refused and download.acknowledged is not None:
                self._set_aside(download.key, download.acknowledged, refused)
            self.learner.adopt(self._believed(download))
            version = (download.epoch, download.round)
            self.known[download.key] = max(self.known[download.key], version)

    def _believed(self, download: Download) -> Download:
        """The pool, unless what this device has measured itself is surely something else: then it
        trusts its own. Whoever makes up most of a pool may lie, and a factor of one's own, which
        makes up for devices that differ, does not for a pool that is bent."""
        assert self.learner is not None
        assert self.terms is not None
        key, own = download.key, self.learner.own(download.key)
        ridge = self.terms.policy.ridge_of(self.terms.hyperparameters)
        if own is None or not contradicted(download.statistics, own, ridge):
            self._contradicted.discard(key)
            return download
        if key not in self._contradicted:
            self._contradicted.add(key)
            _log.warning(
                "its own measurements contradict a pool, which this device does not believe",
                extra={"pool": ":".join(key)},
            )
        return replace(download, statistics=own)

    def _set_aside(self, key: PoolKey, sequence: int, reason: str) -> None:
        """The server has refused an upload for good: it leaves the learner, kept as refused."""
        assert self.learner is not None
        for upload in self.learner.pending():
            if (upload.key, upload.sequence) == (key, sequence):
                before = {each.key: each for each in self._state.refused}
                empty = SufficientStatistics.zero(upload.statistics.dimension)
                known = before.get(key) or RefusedUploads(key, empty, 0, "")
                before[key] = known.and_one(upload.statistics, reason)
                self._state = replace(self._state, refused=tuple(before.values()))
                _log.warning(
                    "our upload was refused",
                    extra={"pool": ":".join(key), "reason": reason,
                           "observations": upload.statistics.count},
                )  # fmt: skip

    def _check(self, key: PoolKey, statistics: SufficientStatistics) -> None:
        sigma, totals = statistics.sigma, (statistics.squares, statistics.weight)
        if self._dimensions.get(key) != len(sigma):
            raise RemoteProtocolError(f"not a pool of this device: {key}")
        largest = max(float(np.abs(sigma).max()), float(np.abs(statistics.b).max()), *totals)
        if min(totals) < 0.0 or largest > _LARGEST:
            raise RemoteProtocolError(f"a pool of numbers that cannot be: {key}")
        if np.linalg.eigvalsh(sigma)[0] < -1e-6 * (1.0 + float(np.trace(sigma))):
            raise RemoteProtocolError(f"a pool that no observations can have made: {key}")

    def pending(self) -> tuple[Upload, ...]:
        """Uploads to send: made, on the disk, and not yet acknowledged."""
        if self.learner is None:
            return ()
        if self._writer.waits or self._lasting:
            return ()  # a number that is used and forgotten could be used again
        return self.learner.pending()

    @property
    def owes(self) -> bool:
        """There are uploads to deliver, even if they cannot be sent just now."""
        return self.learner is not None and bool(self.learner.pending())

    def still_owes(self, uploads: Iterable[Upload]) -> bool:
        """Whether any of these is not acknowledged yet."""
        pending = () if self.learner is None else self.learner.pending()
        owed = {(each.key, each.sequence) for each in pending}
        return any((each.key, each.sequence) in owed for each in uploads)

    # --- keeping ---

    @contextmanager
    def one_commit(self) -> Iterator[None]:
        """What is learned inside is kept together, at the end."""
        self._together, self._lasting = True, False
        try:
            yield
        finally:
            lasting, self._together, self._lasting = self._lasting, False, False
            self._keep(lasting)

    def _keep(self, lasting: bool) -> None:
        if self._together:
            self._lasting = self._lasting or lasting
            return
        if self.learner is not None:
            self._state = replace(self._state, records=self.learner.records())
        self._writer.keep(self._state, lasting)

    @property
    def waits_for_disk(self) -> bool:
        """Whether there are uploads that may not be sent before they are safe."""
        return self.owes and (self._writer.waits or self._lasting)

    @property
    def unwritten(self) -> bool:
        """Whether something was learned that is not on the disk."""
        return self._writer.unwritten

    def write(self) -> None:
        """Have on the disk what was kept. Safe to call while others use the learner."""
        self._writer.write()

    def save(self) -> None:
        self._keep(lasting=False)
        self.write()


def check_table(table: PartitionTable, model: SplitModel) -> None:
    """The server's table must be about this very model, cut at the same points."""
    if table.digest != model.digest:
        raise Refused(
            f"the server's model is another one (digest {table.digest[:12]}, "
            f"here {model.digest[:12]}); use the same file, or let the device fetch it"
        )
    if tuple(table.points) != tuple(point.name for point in model.points):
        raise Refused("the server cuts this model at other points; run the same version of CANS")
    choices = list(zip(table.point_of, table.codec_of, strict=True))[:-1]
    for choice in choices:
        if choice not in model.codecs:
            raise Refused(f"the server uses codec {choice[1]!r}, which this device does not have")
