"""When something learned is worth a message: rules without a clock, socket or fleet.

A device uploads what would change somebody's mind (`upload_is_due`); the server tells its watchers
of a pool when the pool says something else than what it was last told to say (`Editions`), and of
everything else now and then (`Watcher`). Simulator, compiled engine and live server call these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cans.learning.arithmetic.arrays import Array, LearnerState
from cans.learning.arithmetic.estimating import estimate_of, noise_variance
from cans.learning.arithmetic.linear import (
    any_exceeds,
    cholesky,
    inverse_from,
    log_determinant,
    sigma_of,
    times,
    wants_upload,
)
from cans.learning.messages import Download, PoolKey

YOUNG = 20.0
"""Observations beyond one per feature up to which a pool is told of every one at once."""

HEARTBEAT = 200.0
"""Observations that a device keeps to itself at most: a pool that is used must not look silent."""

FEW = 1.5
"""A device that has made more than one of so many of a pool's observations waits until what it
keeps would teach the pool as much as the determinant criterion asks for; any other for less."""

DIFFERENT = 1.5
"""Times the weight that a pool knows of a choice: a device that has so much more of it tells it, or
less, by its share."""

MORE = 1.0 + 1e-9
"""Shares are quotients of counts: what is just as much is not more, however it is rounded."""

MOVED = 1.0
"""A pool is news when its estimate has moved by more than this many of its own standard errors, in
the mean of its features ..."""

GROWN = float(np.log(4.0))
"""... or when the determinant of Sigma has grown by this logarithm per feature: fourfold."""

MATTERS, CERTAIN = 0.1, 0.03
"""A move of less than this matters to nobody, in the mean of what the pool has observed and as the
rows of pools are scaled: a tenth of a millisecond, or 3 % of the latency where that is more. With
many devices the uncertainty of a pool is soon less than that. Nor does it matter that more is known
of what was certain to this standard error."""

MULTIPLIED, SEEN, KNOWN = 8.0, 4.0, 0.01
"""That more is known of a choice is news at this many times the observations that were told;
observations below which its average may be right by chance, and the standard error of it, a share
of latency (or `MATTERS` milliseconds), below which more of them matter to nobody."""

NEWS_SECONDS, NEWS_BURST = 600.0, 1.0
"""A watcher is told of changes that are no news once in so long, and at most so often at once."""

Version = tuple[int, int]  # of a pool: epoch, round


# --- arrays: also compiled -----------------------------------------------------------------------


def upload_is_due(state: LearnerState, device: int, part: int) -> bool:
    """Whether what a device has observed of a part would change somebody's mind: the determinant
    criterion; for parts with events also a surprise, what followed one, a young pool, or much that
    was kept back."""
    observed, waits = state.local[device, part, -1], 1.0
    if observed == 0.0:
        return False
    if state.events[part]:
        waits = patience(state, device, part)
        known = state.synced[device, part, -2]
        if known < int(state.dimension[part]) + state.young or observed >= HEARTBEAT:
            return True
        if state.startling[device, part, -1] > 0.0 or state.awaited[device, part] == 1.0:
            return True
        if state.choices.bends[part] and tells_of_a_choice(state, device, part):
            return True
    return wants_upload(state, device, part, waits)


def patience(state: LearnerState, device: int, part: int) -> float:
    """How much of what would teach a pool enough a device keeps back, from 0 to 1. Many that each
    waited for all of it would together keep back many times what the pool knows; so a device waits
    for its share, and all tell about as often however many they are."""
    if not state.physics.used:
        return 1.0
    known = max(float(state.synced[device, part, -1]), 1.0)
    own = max(float(state.physics.own[device, part, -1]), 1.0)
    return min(FEW * own / known, 1.0) * MORE


def tells_of_a_choice(state: LearnerState, device: int, part: int) -> bool:
    """Whether a device knows much more of some choice than the pool, for its share of all that the
    pool knows: also a determinant criterion, of the model in which every choice stands for itself.
    What it hardly plays it tells of almost at once: what one look has found out, no other device
    has to look for."""
    choices = state.choices
    kept, known = choices.local[device, part, 0], choices.synced[device, part, 0]
    own = np.maximum(choices.own[device, part, 0], 1.0)
    share = np.minimum(FEW * own / max(float(state.synced[device, part, -1]), 1.0), 1.0)
    return any_exceeds(kept, share * known, DIFFERENT * MORE)


def rides(state: LearnerState, part: int, choice: int) -> bool:
    """Whether an observation of a choice is told as soon as a message of another part goes out.
    Where there are no sums of every choice nothing else tells of one that nobody has tried."""
    told_apart = state.choices.bends[part] or not state.informative[part, choice]
    return bool(state.events[part] and not told_apart)


def is_news(
    told: Array, now: Array, ridge: float, dimension: int, moved: float, grown: float
) -> bool:
    """Whether a pool says something else than when its watchers were last told of it, and it could
    matter to a choice; also that it is no longer young: then they need not tell it everything."""
    if told[-2] < dimension + YOUNG <= now[-2]:
        return True
    before = cholesky(sigma_of(told, ridge))
    after = cholesky(sigma_of(now, ridge))
    known, inverse = sigma_of(told, 0.0), inverse_from(before)
    theta = estimate_of(now, ridge, inverse_from(after))
    variance = noise_variance(now, theta, sigma_of(now, 0.0), dimension)
    if log_determinant(after) - log_determinant(before) > grown * dimension:
        # How uncertain, in the mean square, what was observed since then was before.
        uncertain = variance * (inverse * (sigma_of(now, 0.0) - known)).sum()
        if uncertain > CERTAIN * CERTAIN * (now[-2] - told[-2]):
            return True
    step = theta - estimate_of(told, ridge, inverse)
    distance = (step * times(known, step)).sum()
    uncertain = moved * moved * variance * dimension
    return bool(distance > max(uncertain, MATTERS * MATTERS * told[-2]))


def choices_are_news(told: Array, now: Array) -> bool:
    """Whether a pool knows far more of some choice than it was told to know, and that could matter:
    its average was uncertain, or is another one now."""
    number, grown = np.maximum(told[0], 1.0), now[0] > MULTIPLIED * told[0]
    before = told[1] / number
    after = now[1] / np.maximum(now[0], 1.0)
    error = np.maximum(told[2] / number - before * before, 0.0) / np.maximum(number - 1.0, 1.0)
    least = np.maximum(KNOWN * np.abs(before), MATTERS)
    uncertain = (told[0] < SEEN) | (error > least * least)
    return bool((grown & (uncertain | (np.abs(after - before) > least))).any())


# --- the server's side ---------------------------------------------------------------------------


@dataclass
class Editions:
    """Numbers what pools say: a new number when a pool is news, see `is_news`."""

    ridge: float = 0.01
    _told: dict[PoolKey, tuple[int, int, Array, Array]] = field(default_factory=dict)

    def note(self, pool: Download) -> bool:
        """Take note of a pool as it is now; True: this is news, tell all watchers at once."""
        width = pool.statistics.dimension
        now = pool.statistics.pack(width)
        choices = pool.statistics.choices
        number, epoch, told, of_choices = self._told.get(pool.key, (0, -1, now, choices))
        same = epoch == pool.epoch and of_choices.shape == choices.shape
        same = same and not choices_are_news(of_choices, choices)
        if same and not is_news(told, now, self.ridge, width, MOVED, GROWN):
            return False
        self._told[pool.key] = (number + 1, pool.epoch, now, choices)
        return True

    def number(self, key: PoolKey) -> int:
        """The edition of a pool; 0: never noted."""
        return self._told[key][0] if key in self._told else 0


@dataclass
class Watcher:
    """Which of its pools one watching device is to be told of, and when: a token bucket.

        watcher.changed(pool, urgent=editions.note(pool), sender=upload.device)
        for key in watcher.due(now): send the pool, then watcher.told(key, version)
        sleep at most watcher.wait(now)

    It is never told of what it sent itself: the answer to its upload has told it. Times are
    seconds of any clock that does not run backwards.
    """

    device: str
    known: dict[PoolKey, Version]
    tokens: float = 0.0
    refilled: float = 0.0
    _urgent: set[PoolKey] = field(default_factory=set)
    _waiting: set[PoolKey] = field(default_factory=set)

    @classmethod
    def of(cls, device: str, known: Mapping[PoolKey, Version], time: float) -> Watcher:
        return cls(device, dict(known), refilled=time)

    def changed(self, pool: Download, urgent: bool, sender: str | None) -> None:
        """One of the pools is now this; `sender` is whose upload made it so, None: not known."""
        before, now = self.known.get(pool.key), (pool.epoch, pool.round)
        if before is None or now <= before:
            return
        if sender == self.device and now == (before[0], before[1] + 1):
            self.known[pool.key] = now
            return
        if urgent or now[0] > before[0]:
            self._urgent.add(pool.key)
        self._waiting.add(pool.key)

    def due(self, time: float) -> list[PoolKey]:
        """The pools to tell of now, in one message; empty: none."""
        self.refill(time)
        if not self._urgent and (not self._waiting or self.tokens < 1.0):
            return []
        if not self._urgent:
            self.tokens -= 1.0
        return sorted(self._waiting)  # a message goes out anyway: what waits rides along

    def told(self, key: PoolKey, version: Version) -> None:
        """A pool was sent, as it was at this version."""
        self.known[key] = max(self.known[key], version)
        self._urgent.discard(key)
        self._waiting.discard(key)

    def wait(self, time: float) -> float | None:
        """Seconds until something is due if nothing changes before; None: nothing will be."""
        if self._urgent:
            return 0.0
        if not self._waiting:
            return None
        return self.next_token(time)

    def next_token(self, time: float) -> float:
        """Seconds until it may be told of a change that is no news."""
        self.refill(time)
        return max(1.0 - self.tokens, 0.0) * NEWS_SECONDS

    def refill(self, time: float) -> None:
        """Earn tokens for the time that has passed."""
        earned = max(time - self.refilled, 0.0) / NEWS_SECONDS
        self.tokens = min(self.tokens + earned, NEWS_BURST)
        self.refilled = max(time, self.refilled)
