"""What one device may make a server keep, and all of them together. Times come in.

A device has a few pools and one incarnation; one that comes with ever new ones invents them. It may
do so now and then (an operator renames networks, a disk is wiped), so that quotas refill slowly.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cans.errors import Refused

_log = logging.getLogger(__name__)
MOST_REMEMBERED = 100_000  # devices
LOG_SECONDS = 60.0  # between two lines about the same quota


@dataclass
class Bucket:
    """So many at once, and so many a second in the long run."""

    most: float
    per_second: float
    left: float = field(init=False)
    time: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.most

    def take(self, now: float) -> bool:
        """
        >>> bucket = Bucket(2, 0.1)
        >>> [bucket.take(0.0), bucket.take(0.0), bucket.take(5.0), bucket.take(10.0)]
        [True, True, False, True]
        """
        self.left = min(self.left + (now - self.time) * self.per_second, self.most)
        self.time = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


@dataclass(frozen=True)
class QuotaOptions:
    """How much is too much."""

    senders: int = 64  # (pool, incarnation) pairs that a device may use at once
    senders_per_hour: float = 60.0
    all_senders: int = 50_000  # of all devices, at once
    all_senders_per_hour: float = 36_000.0
    watches: int = 4  # open streams of news of one device
    all_watches: int = 20_000
    fetches: int = 4  # model files on their way to one caller
    all_fetches: int = 64
    refusals: int = 64  # of one caller that cost it nothing, at once
    refusals_per_second: float = 16.0


class Quotas:
    """Counts for one server. All methods belong to one event loop."""

    def __init__(self, options: QuotaOptions | None = None) -> None:
        self.options = options or QuotaOptions()
        self._all = Bucket(self.options.all_senders, self.options.all_senders_per_hour / 3600)
        self._devices: OrderedDict[str, tuple[Bucket, set[Hashable]]] = OrderedDict()
        self._open: Counter[tuple[str, str]] = Counter()
        self._patience: dict[str, Bucket] = {}
        self._logged: dict[str, float] = {}

    def sender(self, device: str, sender: Hashable, now: float) -> None:
        """A device uploads to a pool under an incarnation; `Refused` if too many are new."""
        options = self.options
        found = self._devices.get(device)
        if found is None:
            found = (Bucket(options.senders, options.senders_per_hour / 3600, now), set())
            self._devices[device] = found
            if len(self._devices) > MOST_REMEMBERED:
                self._devices.popitem(last=False)
        bucket, known = found
        if sender in known:
            return
        if not bucket.take(now):
            self._over("pools and incarnations of one device", device, options.senders, now)
        if not self._all.take(now):
            self._over(
                "new pools and incarnations of all devices", device, options.all_senders, now
            )
        if len(known) >= 2 * options.senders:
            known.clear()  # they will be counted again: memory is bounded, not exact
        known.add(sender)

    def refused_too_often(self, caller: str, now: float) -> bool:
        """A caller is refused once more; whether it should be slowed down."""
        found = self._patience.get(caller)
        if found is None:
            if len(self._patience) >= MOST_REMEMBERED:
                self._patience.clear()
            found = Bucket(self.options.refusals, self.options.refusals_per_second, now)
            self._patience[caller] = found
        return not found.take(now)

    @contextmanager
    def watching(self, device: str, now: float) -> Iterator[None]:
        """As long as a device watches; `Refused` if it does so too often at the same time."""
        with self._one_more("watches", device, self.options.watches, self.options.all_watches, now):
            yield

    @contextmanager
    def fetching(self, caller: str, now: float) -> Iterator[None]:
        with self._one_more("fetches", caller, self.options.fetches, self.options.all_fetches, now):
            yield

    @contextmanager
    def _one_more(
        self, kind: str, who: str, most: int, most_in_all: int, now: float
    ) -> Iterator[None]:
        if self._open[kind, who] >= most:
            self._over(f"open {kind} of one device", who, most, now)
        if self._open[kind, ""] >= most_in_all:
            self._over(f"open {kind} of all devices", who, most_in_all, now)
        self._open[kind, who] += 1
        self._open[kind, ""] += 1
        try:
            yield
        finally:
            self._open[kind, ""] -= 1
            self._open[kind, who] -= 1
            if not self._open[kind, who]:
                del self._open[kind, who]

    def _over(self, quota: str, device: str, most: int, now: float) -> None:
        last = self._logged.get(quota)
        if last is None or now - last >= LOG_SECONDS:
            self._logged[quota] = now
            _log.warning("quota reached", extra={"quota": quota, "most": most, "device": device})
        raise Refused(
            f"quota reached: {quota}, at most {most} at once; try again later", "RESOURCE_EXHAUSTED"
        )
