"""`EdgeAggregator`: the server's side of every policy (Alg. 2), without clock, file or network.

`PoolContents` is immutable and `merged` a pure function, so that the same rules run over a
dictionary in the simulator and inside a database transaction on a server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from cans.learning.arithmetic import observing, pooling
from cans.learning.arithmetic.arrays import Array, PoolState, new_pools
from cans.learning.messages import Download, PoolKey, Upload
from cans.learning.policies import Hyperparameters, Policy
from cans.learning.statistics import SufficientStatistics


@dataclass(frozen=True)
class Received:
    """Which sequence numbers of one device were taken in: all below `next`, and some beyond."""

    next: int = 0
    beyond: frozenset[int] = frozenset()

    def __contains__(self, sequence: int) -> bool:
        return sequence < self.next or sequence in self.beyond

    def including(self, sequence: int) -> Received:
        beyond = self.beyond | {sequence}
        upto = self.next
        while upto in beyond:
            beyond -= {upto}
            upto += 1
        return Received(upto, beyond)


@dataclass(frozen=True)
class MergeRules:
    """How uploads enter a pool; those of the paper's policies are not watched."""

    watched: bool = False  # what is far off counts for less, and too much of it starts it anew
    ridge: float = 0.01


PLAIN = MergeRules()


def rules_of(policy: Policy, hyperparameters: Hyperparameters, part: str) -> MergeRules:
    """The rules of the pools of one part of a policy."""
    return MergeRules(policy.part(part).watched, policy.ridge_of(hyperparameters))


@dataclass(frozen=True)
class PoolContents:
    """Everything merged under one key, and what the laws need to account for the rest."""

    statistics: SufficientStatistics
    epoch: int = 0
    round: int = 0  # merges so far: the paper's logical order t
    time: float = 0.0  # of the last merge, seconds by the server's clock
    alarm: tuple[float, float] = (0.0, 0.0)  # evidence of having become slower, and faster
    retired: SufficientStatistics | None = None  # of epochs that ended, late uploads included
    doubted: SufficientStatistics | None = None  # what was taken off uploads that were far off

    @classmethod
    def empty(cls, dimension: int) -> PoolContents:
        return cls(SufficientStatistics.zero(dimension))

    def as_arrays(self, choices: int = 0) -> PoolState:
        """One pool of one part, as `pooling.py` wants it, of at least so many choices."""
        width, most = self.statistics.dimension, max(choices, self.statistics.choices.shape[1])
        state = new_pools(1, 1, width, choices=most)
        state.statistics[0, 0] = self.statistics.pack(width)
        state.choices[0, 0] = self.statistics.of_choices(most)
        state.time[0, 0], state.epoch[0, 0], state.round[0, 0] = self.time, self.epoch, self.round
        state.alarm[0, 0] = self.alarm
        for kept, array, of_choices in (
            (self.retired, state.retired, state.choices_retired),
            (self.doubted, state.doubted, state.choices_doubted),
        ):
            if kept is not None:
                array[0, 0] = kept.pack(width)
                of_choices[0, 0] = kept.of_choices(most)
        return state

    @classmethod
    def from_arrays(cls, state: PoolState, dimension: int) -> PoolContents:
        return cls(
            SufficientStatistics.unpack(state.statistics[0, 0], dimension, state.choices[0, 0]),
            int(state.epoch[0, 0]),
            int(state.round[0, 0]),
            float(state.time[0, 0]),
            (float(state.alarm[0, 0, 0]), float(state.alarm[0, 0, 1])),
            _unless_empty(state.retired[0, 0], dimension, state.choices_retired[0, 0]),
            _unless_empty(state.doubted[0, 0], dimension, state.choices_doubted[0, 0]),
        )


def _unless_empty(statistics: Array, dimension: int, choices: Array) -> SufficientStatistics | None:
    if not statistics.any():
        return None
    return SufficientStatistics.unpack(statistics, dimension, choices)


def merged(
    pool: PoolContents,
    received: Received,
    upload: Upload,
    time: float = 0.0,
    rules: MergeRules = PLAIN,
) -> tuple[PoolContents, Received]:
    """`pooling.merge` for one pool, at most once per upload: a repeat changes nothing.

    `received` is what this pool has taken in from the upload's sender before; `time` is the
    server's.
    """
    if upload.sequence in received:
        return pool, received
    width = pool.statistics.dimension
    state = pool.as_arrays(upload.statistics.choices.shape[1])
    sums = upload.statistics.pack(width)
    choices = upload.statistics.of_choices(state.choices.shape[3])
    epoch, ridge, watched = upload.epoch, rules.ridge, rules.watched
    pooling.merge(state, 0, 0, sums, epoch, time, ridge, watched, width, choices)
    return PoolContents.from_arrays(state, width), received.including(upload.sequence)


def restarted(pool: PoolContents) -> PoolContents:
    """The pool in its next epoch, of which nothing is known yet."""
    state, width = pool.as_arrays(), pool.statistics.dimension
    pooling.start_anew(state, 0, 0, np.zeros_like(state.statistics[0, 0]))
    return PoolContents.from_arrays(state, width)


def read_again(pool: PoolContents, believed: SufficientStatistics) -> PoolContents:
    """The pool with these sums in the place of its own: the same observations, of which others are
    believed than before. What is no longer, or was not, is doubted; counts stay."""
    statistics = replace(believed, count=pool.statistics.count)
    change = pool.statistics - statistics
    return replace(
        pool,
        statistics=statistics,
        round=pool.round + 1,
        alarm=(0.0, 0.0),
        doubted=change if pool.doubted is None else pool.doubted + change,
    )


Sender = tuple[PoolKey, str, str]  # pool, device, incarnation


class EdgeAggregator:
    """Holds the pools of a fleet and merges uploads into them."""

    def __init__(self, policy: Policy, hyperparameters: Hyperparameters | None = None) -> None:
        numbers = hyperparameters or Hyperparameters()
        self._rules = {part.name: rules_of(policy, numbers, part.name) for part in policy.parts}
        self.pools: dict[PoolKey, PoolContents] = {}
        self.received: dict[Sender, Received] = {}

    def join(self, uploads: Iterable[Upload], time: float = 0.0) -> tuple[Download, ...]:
        """A device arrives with the offline experience of each shared part as sequence 0."""
        return tuple(self.merge(upload, time) for upload in uploads)

    def merge(self, upload: Upload, time: float = 0.0) -> Download:
        """Add an upload to its pool and return the pool (Alg. 2)."""
        dimension = upload.statistics.dimension
        pool = self.pools.get(upload.key) or PoolContents.empty(dimension)
        if pool.statistics.dimension != dimension:
            raise ValueError(
                f"an upload of dimension {dimension} cannot enter a pool of dimension "
                f"{pool.statistics.dimension}: {upload.key}"
            )
        sender = (upload.key, upload.device, upload.incarnation)
        received = self.received.get(sender, Received())
        pool, received = merged(pool, received, upload, time, self._rules[upload.key.part])
        self.pools[upload.key], self.received[sender] = pool, received
        return download_of(upload.key, pool, upload.sequence)

    def unsurprised(self, key: PoolKey) -> None:
        """A device of a pool made an inference and told nothing of it."""
        alarm = np.array(self.pools[key].alarm)
        observing.unsurprised(alarm)
        self.pools[key] = replace(self.pools[key], alarm=(float(alarm[0]), float(alarm[1])))

    def download(self, key: PoolKey) -> Download:
        """The pool as it is now; a device has joined it before."""
        return download_of(key, self.pools[key])

    def reset(self, key: PoolKey) -> None:
        """Start a pool anew."""
        self.pools[key] = restarted(self.pools[key])


def download_of(key: PoolKey, pool: PoolContents, acknowledged: int | None = None) -> Download:
    """The message that carries a pool."""
    return Download(key, pool.epoch, pool.statistics, pool.round, acknowledged, pool.time)
