"""What the server times itself: the parts of a policy that explain its own latency alone.

Nobody needs to tell a server how long it takes. It observes that as a device would, with the same
learner, and uploads to its own pools; what devices say of these parts is counted and kept as
doubted, so that no lie about the server is ever believed. All methods belong to one thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence

from cans.learning import DeviceIdentity, DeviceLearner, Download, Latencies, PoolKey, Upload
from cans.learning.plausibility import Limits
from cans.live.split import SplitModel
from cans.live.wire.terms import Terms

PER_SECOND, AT_ONCE = 1.0, 100.0  # observations: more of them would teach nothing and cost time
RETRY_SECONDS = 1.0  # after a store that did not take what was to be booked


class Booking:
    """The server's own observations, model by model."""

    def __init__(self, terms: Terms, offered: Callable[[str], SplitModel | None]) -> None:
        """`offered`: the model of a digest, if it is served."""
        policy = terms.policy
        self._policy = policy.as_server()
        self._numbers = terms.hyperparameters
        self._limits: Limits = terms.limits
        self._pushed = terms.fresh_pools  # else a device hears of a pool by uploading to it
        self._offered = offered
        self._who = DeviceIdentity("server", secrets.token_hex(8))
        self._learners: dict[str, DeviceLearner] = {}  # by digest
        self._rows: dict[str, dict[tuple[int, str], int]] = {}  # of a point with a codec
        self._retry_at = 0.0
        self._credit, self._last = AT_ONCE, 0.0
        self._names = frozenset(part.name for part in policy.of_server)
        self.count = 0  # observations since the start

    def books_all(self, model: SplitModel) -> bool:
        """Whether devices need not upload what they see of this server."""
        return bool(self._names) and _is_fixed(model) and self._pushed

    def books(self, key: PoolKey) -> bool:
        """Whether this pool is the server's own."""
        return key.part in self._names and _is_fixed(self._offered(key.model))

    def ran(
        self, model: SplitModel, runs: Sequence[tuple[int, float]], now: float
    ) -> tuple[Upload, ...]:
        """The server has run these choices by itself, (choice, milliseconds) each; returns what is
        to be merged now."""
        learner = self._learners.get(model.digest) or self._new_learner(model)
        runs = [each for each in runs if self._limits.admits(each[1])]
        self.count += len(runs)
        uploads = learner.join(runs)
        if uploads:
            return uploads
        later = (learner.observe(row, Latencies(None, None, ms), now) for row, ms in runs)
        return tuple(upload for each in later for upload in each)  # a device was faster

    def timed(
        self, model: SplitModel, point: int, codec: str, server_ms: float, now: float
    ) -> tuple[Upload, ...]:
        """A back-end has run; returns what is to be merged now, which is mostly nothing."""
        if not self._names or not _is_fixed(model) or not self._limits.admits(server_ms):
            return ()
        self._credit = min(self._credit + max(now - self._last, 0.0) * PER_SECOND, AT_ONCE)
        self._last = now
        if self._credit < 1.0:
            return ()
        self._credit -= 1.0
        learner = self._learners.get(model.digest) or self._new_learner(model)
        self.count += 1
        row = self._rows[model.digest][point, codec]
        uploads = learner.observe(row, Latencies(None, None, server_ms), now)
        if uploads or now < self._retry_at:
            return uploads
        return learner.pending() if self._retry_at else ()

    def merged(self, downloads: Iterable[Download]) -> None:
        """The store has taken it, and this is what is known now."""
        self._retry_at = 0.0
        for each in downloads:
            learner = self._learners.get(each.key.model)
            if learner is not None:
                learner.adopt(each)
                learner.get_ready()

    def failed(self, now: float) -> None:
        """The store has not taken it: it goes again with what comes later."""
        self._retry_at = now + RETRY_SECONDS

    def rest(self) -> tuple[Upload, ...]:
        """What is left to merge when the server stops."""
        flushed = (each for learner in self._learners.values() for each in learner.flush())
        return tuple(each for each in flushed if each.statistics.count)

    def _new_learner(self, model: SplitModel) -> DeviceLearner:
        gone = [digest for digest in self._learners if self._offered(digest) is None]
        for digest in gone:
            del self._learners[digest], self._rows[digest]
        table = model.table
        choices = zip(table.point_of, table.codec_of, strict=True)
        self._rows[model.digest] = {choice: row for row, choice in enumerate(choices)}
        learner = DeviceLearner(table, self._policy, self._who, self._numbers)
        self._learners[model.digest] = learner
        return learner


def _is_fixed(model: SplitModel | None) -> bool:
    """Whether a model is always of the same size: else only the device knows its features."""
    return model is not None and model.rows is None
