"""Arrays that the arithmetic works on: a plain named tuple, so that numba sees it too.

Axis 0 is the device (or the pool), axis 1 the part. One device's learner is a fleet of one; the
simulator's is the whole fleet. Parts of fewer features are padded with zero columns to the widest
one: a feature that is always zero learns nothing and changes nothing.

Sufficient statistics are one vector, so that adding them is adding vectors:

    [ Sigma, row by row | b | sum of y^2 | sum of weights | number of observations ]
      d d                 d   1            1                1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


ANEW = 64
"""Rows that `Physics.root` takes in one by one before it is computed anew."""

MATURE = 5.0
"""Observations beyond one per feature before a pool's predictions are tested."""

LARGEST = 0.5
"""The largest spread of choices about their line that is believed, a share of latency."""

SUMS = 5
"""Sums that are kept of every choice: see `ByChoice`."""

INSISTENCE = 5.0
"""Surprises in a row that a device tells of at once; see `observing.py`."""


class Physics(NamedTuple):
    """What policy `cans` holds beyond the paper's statistics; see `estimating.py`."""

    used: bool
    kappa: float  # width in estimated standard deviations; 0: `radius` as it was given
    nonnegative: bool  # theta >= 0, and the floors that follow from it
    offered: BoolArray  # (choices,)               may be chosen at all
    viable: BoolArray  # (choices,)                can win for some possible theta ...
    barred: Array  # (choices,)                    ... infinite where not, zero where it can
    beaten: BoolArray  # (choices, choices)        [p, q]: p cannot win where q may be chosen
    sources: IntArray  # (choices,)                the viable choices, and then the others
    source_count: IntArray  # (1,)                 how many of them are viable
    floor: Array  # (parts, choices, choices)      what p costs at least, in units of what q costs
    floor_by_source: Array  # (choices, parts, choices) the same, in the order of `sources`
    columns: Array  # (d, parts, choices)          `rows` by feature: the same for all parts at once
    spread: (
        Array  # (parts,)                      how much devices of one pool differ; 0: not at all
    )
    watched: BoolArray  # (parts,)                 whether changes are looked for
    front_part: int  # for the test that the server is the faster one; -1: cannot be told
    server_part: int
    idle_device: BoolArray  # (choices,)           the device has next to nothing to do ...
    idle_server: BoolArray  # (choices,)           ... or the server: see `idle.py`
    own: Array  # (devices, parts, size)           everything this device observed itself
    alarm: Array  # (devices, parts, 2)            evidence of having become slower, and faster
    apart: BoolArray  # (devices, parts)           it has changed, and its pool has not ...
    dropped: Array  # (devices, parts)             ... and so many of its own no longer count
    pace: Array  # (devices, parts)                how many times its pool's average it takes
    divisor: Array  # (devices, parts)             the same, by which what it tells is divided
    unlike: Array  # (devices, parts, 2)           what it tells of that: see `deviations.differing`
    theta: Array  # (devices, parts, d)            the estimate, at this device's pace
    deviation: Array  # (devices, parts)           standard deviation of a weighted residual
    root: Array  # (devices, parts, d, d)          root' root = (ridge I + Sigma)^-1 of all known
    latest: Array  # (devices, parts, d)           a weighted row that `root` does not have yet
    updates: IntArray  # (devices, parts)          rows that were added to `root` one by one
    low: Array  # (devices, parts, choices)        lower confidence bound of the latency
    stale: BoolArray  # (devices, parts)           an estimate is due
    pending: Array  # (devices, parts)             observations of its own since the last one
    scores: Array  # (devices, choices)            of the last estimate, where nobody waits
    ran: Array  # (devices,)                       when it last ran most of the model itself


class ByChoice(NamedTuple):
    """Sums of every choice beside those of the lines, of parts that may bend: its observations,
    their latencies and the squares of those; how unlike its pool each device was that observed
    them, and how many of them tell; see `deviations.py`."""

    used: bool
    bends: BoolArray  # (parts,)                   whether choices may deviate from the line ...
    suspect: BoolArray  # (parts,)                 ... and are thought to before anything shows it
    rows: Array  # (parts, choices, d)             features of every choice at the largest input ...
    largest: BoolArray  # (1,)                     ... which is what the device has now
    synced: Array  # (devices, parts, 5, choices)  as the fields of `LearnerState` ...
    local: Array
    sent: Array
    retired: Array
    startling: Array
    own: Array  # ... and of `Physics`
    spread: Array  # (devices, parts)              of choices about the line, a share; 0: it fits
    suspected: Array  # (devices, parts)           spread to reckon with where none was found
    scatter: Array  # (devices, parts, choices)    standard deviation that residuals are judged by
    width: Array  # (devices, parts, choices)      standard deviation of the expected latency, ms
    personal: Array  # (devices, parts)            of the device's choices about those of its pool
    factor: Array  # (devices, parts, choices)     what the device takes, over what its pool expects
    unsure: Array  # (devices, parts, choices)     standard deviation of that, a share of latency
    tested: Array  # (devices, parts)              observations when that was last looked into
    seen: Array  # (devices, choices)              what was seen of every choice then, ms ...
    least: Array  # (devices, choices)             ... and what it surely takes
    earned: Array  # (devices, 2)                  towards a look; its own observations by then
    considered: Array  # (devices, parts)          observations when a look was last considered


class PoolState(NamedTuple):
    """The server's pools, as arrays."""

    statistics: Array  # (pools, parts, size)
    time: Array  # (pools, parts)                  of the last merge
    epoch: IntArray  # (pools, parts)
    round: IntArray  # (pools, parts)              merges so far
    alarm: Array  # (pools, parts, 2)              evidence of having become slower, and faster
    retired: Array  # (pools, parts, size)         of epochs that ended, late uploads included
    doubted: Array  # (pools, parts, size)         what was taken off uploads that were far off
    told: Array  # (pools, parts, size)            what the present edition says
    edition: IntArray  # (pools, parts)            grows when the pool is news: see `exchange.py`
    news: Array  # (2,)                            how far it must have moved, or grown, to be news
    choices: Array  # (pools, parts, 5, choices)   sums of every choice: see `ByChoice`
    choices_retired: Array
    choices_doubted: Array
    choices_told: Array


class LearnerState(NamedTuple):
    """What each device knows of each part."""

    rows: Array  # (parts, choices, d)             features of every choice
    sums_at_zero: Array  # (parts, choices, size)  statistics of observing 0 ms there ...
    sums_per_ms: Array  # (parts, choices, size)   ... and what each millisecond adds to them
    informative: BoolArray  # (parts, choices)     False where x = 0: nothing to learn there
    uses_local: BoolArray  # (parts,)              estimates use own observations at once
    dimension: IntArray  # (parts,)                features without the padding
    threshold: Array  # (parts,)                   log(1 + alpha); infinite: nothing is uploaded
    events: BoolArray  # (parts,)                  uploads when it matters: see `exchange.py`
    young: float  # observations per part beyond one per feature up to which a pool hears of all
    ridge: float  # lambda
    synced: Array  # (devices, parts, size)        the last download, and what was confirmed since
    heard: Array  # (devices, parts)               when anybody, as far as is known, last observed
    epoch: IntArray  # (devices, parts)            of the pool that was adopted ...
    round: IntArray  # (devices, parts)            ... and how many merges it had seen
    local: Array  # (devices, parts, size)         observed, not (yet) taken in by the server
    sent: Array  # (devices, parts, size)          the share of `local` that is on its way
    retired: Array  # (devices, parts, size)       observed for an epoch that had already ended
    startling: Array  # (devices, parts, size)     the share of `local` that was far off
    awaited: Array  # (devices, parts)             observations after a surprise until it tells more
    credit: Array  # (devices, parts)              surprises that it may tell at once
    reach: Array  # (devices, parts, choices, d)   X (ridge I + Sigma)^-1; empty: not refined
    mean: Array  # (devices, parts, choices)       <theta, x>
    norm: Array  # (devices, parts, choices)       |x| in the norm of (ridge I + Sigma)^-1
    log_det: Array  # (devices, parts)             log det (ridge I + synced Sigma)
    gain: Array  # (devices, parts)                upper bound of the growth of log det since then
    radius: Array  # (devices, parts)              beta of Eq. 3
    physics: Physics
    choices: ByChoice


def statistics_size(dimension: int) -> int:
    """Length of the vector of statistics of d features."""
    return dimension * dimension + dimension + 3


def new_state(
    features: Sequence[Array],
    devices: int,
    *,
    uses_local: Sequence[bool],
    radius: Sequence[Array | float],
    threshold: Sequence[float],
    events: Sequence[bool],
    young: float,
    ridge: float,
    physics: Physics | None = None,
    bends: Sequence[bool] = (),
    suspect: Sequence[bool] = (),
) -> LearnerState:
    """The state before anything was seen; `estimate` must run before the first `select`."""
    rows = padded(features)
    parts, choices, dimension = rows.shape
    size = statistics_size(dimension)
    sums_at_zero, sums_per_ms = contributions(rows)
    refined = devices if any(uses_local) and physics is None else 0
    radii = np.empty((devices, parts))
    for part in range(parts):
        radii[:, part] = radius[part]
    return LearnerState(
        rows=rows,
        sums_at_zero=sums_at_zero,
        sums_per_ms=sums_per_ms,
        informative=np.asarray(rows.any(axis=2)),
        uses_local=np.array(uses_local, dtype=np.bool_),
        dimension=np.array([each.shape[1] for each in features], dtype=np.int64),
        threshold=np.array(threshold, dtype=np.float64),
        events=np.array(events, dtype=np.bool_),
        young=young,
        ridge=float(ridge),
        synced=np.zeros((devices, parts, size)),
        heard=np.zeros((devices, parts)),
        epoch=np.zeros((devices, parts), dtype=np.int64),
        round=np.zeros((devices, parts), dtype=np.int64),
        local=np.zeros((devices, parts, size)),
        sent=np.zeros((devices, parts, size)),
        retired=np.zeros((devices, parts, size)),
        startling=np.zeros((devices, parts, size)),
        awaited=np.zeros((devices, parts)),
        credit=np.full((devices, parts), INSISTENCE),
        reach=np.zeros((refined, parts, choices, dimension)),
        mean=np.zeros((devices, parts, choices)),
        norm=np.zeros((devices, parts, choices)),
        log_det=np.zeros((devices, parts)),
        gain=np.zeros((devices, parts)),
        radius=radii,
        physics=physics or no_physics(),
        choices=_by_choice(devices, rows, bends, suspect),
    )


def _by_choice(
    devices: int, rows: Array, bends: Sequence[bool], suspect: Sequence[bool]
) -> ByChoice:
    """Nothing seen of any choice; no room for it where no part bends."""
    parts, choices, _ = rows.shape
    used = any(bends)
    shape = (devices, parts, SUMS, choices) if used else (0, 0, 0, 0)
    return ByChoice(
        used=used,
        bends=np.array(bends if used else [False] * parts, dtype=np.bool_),
        suspect=np.array(suspect if used else [False] * parts, dtype=np.bool_),
        rows=rows.copy(),
        largest=np.ones(1, dtype=np.bool_),
        synced=np.zeros(shape),
        local=np.zeros(shape),
        sent=np.zeros(shape),
        retired=np.zeros(shape),
        startling=np.zeros(shape),
        own=np.zeros(shape),
        spread=np.zeros((devices, parts)),
        suspected=np.full((devices, parts), LARGEST),
        scatter=np.zeros((devices, parts, choices)),
        width=np.zeros((devices, parts, choices)),
        personal=np.zeros((devices, parts)),
        factor=np.ones((devices, parts, choices)),
        unsure=np.zeros((devices, parts, choices)),
        tested=np.zeros((devices, parts)),
        seen=np.zeros((devices, choices)),
        least=np.zeros((devices, choices)),
        earned=np.zeros((devices, 2)),
        considered=np.zeros((devices, parts)),
    )


def no_physics() -> Physics:
    """For the paper's policies: nothing, of the right types."""
    flag, number, series = np.zeros(0, dtype=np.bool_), np.zeros(0), np.zeros((0, 0))
    return Physics(
        used=False,
        kappa=0.0,
        nonnegative=False,
        offered=flag,
        viable=flag,
        barred=number,
        beaten=np.zeros((0, 0), dtype=np.bool_),
        sources=np.zeros(0, dtype=np.int64),
        source_count=np.zeros(1, dtype=np.int64),
        floor=np.zeros((0, 0, 0)),
        floor_by_source=np.zeros((0, 0, 0)),
        columns=np.zeros((0, 0, 0)),
        spread=number,
        watched=flag,
        front_part=-1,
        server_part=-1,
        idle_device=flag,
        idle_server=flag,
        own=np.zeros((0, 0, 0)),
        alarm=np.zeros((0, 0, 0)),
        apart=np.zeros((0, 0), dtype=np.bool_),
        dropped=series,
        pace=series,
        divisor=series,
        unlike=np.zeros((0, 0, 0)),
        theta=np.zeros((0, 0, 0)),
        deviation=series,
        root=np.zeros((0, 0, 0, 0)),
        latest=np.zeros((0, 0, 0)),
        updates=np.zeros((0, 0), dtype=np.int64),
        low=np.zeros((0, 0, 0)),
        stale=np.zeros((0, 0), dtype=np.bool_),
        pending=series,
        scores=series,
        ran=number,
    )


def new_pools(
    pools: int,
    parts: int,
    dimension: int,
    news: tuple[float, float] = (np.inf, np.inf),
    choices: int = 0,
) -> PoolState:
    """Pools of nothing; unless told otherwise, nothing that happens to them is news."""
    shape = (pools, parts, statistics_size(dimension))
    return PoolState(
        statistics=np.zeros(shape),
        time=np.zeros(shape[:2]),
        epoch=np.zeros(shape[:2], dtype=np.int64),
        round=np.zeros(shape[:2], dtype=np.int64),
        alarm=np.zeros((*shape[:2], 2)),
        retired=np.zeros(shape),
        doubted=np.zeros(shape),
        told=np.zeros(shape),
        edition=np.zeros(shape[:2], dtype=np.int64),
        news=np.array(news),
        choices=np.zeros((*shape[:2], SUMS, choices)),
        choices_retired=np.zeros((*shape[:2], SUMS, choices)),
        choices_doubted=np.zeros((*shape[:2], SUMS, choices)),
        choices_told=np.zeros((*shape[:2], SUMS, choices)),
    )


def contributions(rows: Array) -> tuple[Array, Array]:
    """(sums at 0 ms, sums per ms): the statistics of one observation y of each row are the first
    plus y times the second, and y^2 beside it."""
    *lead, dimension = rows.shape
    size, square = statistics_size(dimension), dimension * dimension
    at_zero, per_ms = np.zeros((*lead, size)), np.zeros((*lead, size))
    at_zero[..., :square] = (rows[..., :, None] * rows[..., None, :]).reshape(*lead, square)
    at_zero[..., -2:] = 1.0
    per_ms[..., square : square + dimension] = rows
    return at_zero, per_ms


def padded(features: Sequence[Array]) -> Array:
    """(parts, choices, widest): the features of all parts, zero columns where a part has fewer."""
    widest = max(each.shape[1] for each in features)
    rows = np.zeros((len(features), len(features[0]), widest))
    for part, each in enumerate(features):
        rows[part, :, : each.shape[1]] = each
    return rows
