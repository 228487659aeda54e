"""The recorder: what happens on a server, made into a picture of its fleet.

A thread of its own takes happenings from the queue, so that no request waits for it. Everything is
bounded: devices, inferences of each, events.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from cans.errors import CansError
from cans.learning import DeviceIdentity, PoolKey
from cans.live.server.catalogue import Catalogue
from cans.live.server.fleet.device_record import DeviceRecord
from cans.live.server.fleet.happenings import (
    Accounted,
    Answered,
    Doubted,
    Happening,
    Happenings,
    Joined,
    Merged,
    Rejected,
    Watching,
)
from cans.live.server.fleet.rates import Rates

_log = logging.getLogger(__name__)
MOST_DEVICES = 2000
MOST_EVENTS = 500
DIGEST_SECONDS = 1.0  # whoever wants to know sooner, as the page does, asks for it
_OVERLOAD = "RESOURCE_EXHAUSTED"
_QUIET = 5.0  # seconds in which the same refusal or overload is told once


@dataclass(frozen=True)
class FleetEvent:
    """Something worth telling a person."""

    number: int  # in order, from 1
    time: float
    kind: str  # join, leave, change, choice, refusal, fallback, overload or model
    device: str
    text: str


@dataclass
class PoolRecord:
    """What a server remembers of a pool beside its statistics."""

    epoch: int = 0
    uploads: int = 0
    merged_at: float = 0.0


class Recorder:
    """The fleet, as it is now. `lock` guards everything that is read from another thread."""

    def __init__(
        self, catalogue: Catalogue, clock: Callable[[], float], observed: bool = True
    ) -> None:
        self.happenings = Happenings() if observed else Happenings(0)
        self.lock = threading.RLock()
        self.devices: dict[str, DeviceRecord] = {}
        self.pools: dict[PoolKey, PoolRecord] = {}
        self.events: deque[FleetEvent] = deque(maxlen=MOST_EVENTS)
        self.told = 0  # events ever
        self.server = ""  # HOST:PORT of this one, to tell it from others of its fleet
        self.requests = 0
        self.rates = Rates()
        self.listeners: list[Callable[[list[Happening]], None]] = []  # metrics; called off the path
        self._catalogue = catalogue
        self._now = clock
        self._models = {each.name: each.digest for each in catalogue.models}
        self._said: dict[tuple[str, str], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    # --- the thread ---

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(DIGEST_SECONDS):
            self.digest()
        self.digest()

    def digest(self) -> None:
        """Take in all that has happened so far."""
        with self.lock:
            happenings = self.happenings.take()
            for each in happenings:
                try:
                    self._take_in(each)
                except CansError as error:  # of a model that has gone meanwhile, say
                    _log.debug("not recorded", extra={"reason": str(error)})
            self._notice_silence()
            self._notice_models()
        for listener in self.listeners:
            listener(happenings)

    def model_name(self, digest: str) -> str:
        """Its name, or the digest of one that has gone."""
        try:
            return self._catalogue.find(digest).name
        except CansError:
            return digest[:12]

    def now(self) -> float:
        return self._now()

    # --- happenings ---

    def _take_in(self, each: Happening) -> None:
        match each:
            case Answered():
                self._answered(each)
            case Accounted():
                self._accounted(each)
            case Joined():
                self._joined(each)
            case Merged():
                self._merged(each)
            case Doubted():
                self._doubted(each)
            case Rejected():
                self._rejected(each)
            case Watching():
                record = self.devices.get(each.device)
                if record is not None:
                    record.listening = max(record.listening + (1 if each.begun else -1), 0)
                    record.heard(each.time)

    def _joined(self, joined: Joined) -> None:
        who, model = joined.identity, self._catalogue.find(joined.model)
        record = self.devices.get(who.device)
        again = record is not None and record.identity == who
        if record is None or not again or record.table.version != model.table.version:
            record = DeviceRecord(who, model.name, model.table, self.server)
            record.joined_at = joined.time
            self._admit(who.device, record, joined.time)
        record.heard(joined.time)
        word = "joined again" if again else "joined"
        self._tell(
            joined.time, "join", who.device, f"{word}: {who.type} on {who.network}, {model.name}"
        )

    def _answered(self, done: Answered) -> None:
        self.requests += 1
        record = self._record(done.device, done.model, done.time)
        if record is None:
            return
        record.heard(done.time)
        record.no_server = False
        row = record.rows_of.get((done.point, done.codec))
        if row is not None and record.took(row, done.time):
            self._tell_choice(record, done.time, row)

    def _accounted(self, told: Accounted) -> None:
        record = self.devices.get(told.device)
        if record is None:
            return
        fallbacks, counted = record.fallbacks, record.counted
        changed = record.told(told.account, told.time)
        fresh = min(record.counted - counted, len(record.rounds))
        for seen in islice(record.rounds, len(record.rounds) - fresh, None):
            self.rates.add(seen.time, seen.played.total_ms)
        if changed and record.row is not None:
            self._tell_choice(record, told.time, record.row)
        if record.fallbacks > fallbacks:
            self._tell_seldom(
                told.time,
                "fallback",
                told.device,
                "the server did not answer in time; the device finished by itself",
            )

    def _merged(self, merged: Merged) -> None:
        record = self.devices.get(merged.device)
        if record is not None:
            record.uploads += not merged.refused
            record.refused += bool(merged.refused)
            record.heard(merged.time)
            record.changed()
        pool = self.pools.setdefault(merged.key, PoolRecord(merged.epoch))
        if merged.refused:
            self._tell_seldom(
                merged.time,
                "refusal",
                merged.device,
                f"upload to {_pool_name(merged.key)} refused: {merged.refused}",
            )
            return
        if merged.epoch > pool.epoch:
            pool.epoch = merged.epoch
            self._tell(
                merged.time,
                "change",
                "",
                f"{_pool_name(merged.key)} has changed: what was known of it starts anew",
            )
        pool.uploads += 1
        pool.merged_at = merged.time

    def _doubted(self, doubted: Doubted) -> None:
        text = f"{_pool_name(doubted.key)}: {doubted.text}"
        self._tell_seldom(doubted.time, "refusal", doubted.device, text)

    def _rejected(self, rejected: Rejected) -> None:
        kind = "overload" if rejected.code == _OVERLOAD else "refusal"
        self._tell_seldom(
            rejected.time, kind, rejected.device, f"{rejected.method}: {rejected.reason}"
        )

    # --- noticed, not reported ---

    def _notice_silence(self) -> None:
        """A device that goes says nothing: tell of it once."""
        now = self.now()
        for name, record in self.devices.items():
            gone = record.state(now) == "gone"
            if gone and not record.told_gone:
                self._tell(now, "leave", name, "has not been heard of for a while")
            record.told_gone = gone

    def _notice_models(self) -> None:
        models = {each.name: each.digest for each in self._catalogue.models}
        for name, digest in models.items():
            if self._models.get(name) != digest:
                what = "is served anew" if name in self._models else "is served"
                self._tell(self.now(), "model", "", f"{name} {what} ({digest[:12]})")
        for name in self._models.keys() - models.keys():
            self._tell(self.now(), "model", "", f"{name} is no longer served")
        self._models = models

    # --- helpers ---

    def _record(self, device: str, model: str, time: float) -> DeviceRecord | None:
        """The record of a device; of one that joined before this server started, a new one."""
        record = self.devices.get(device)
        if record is None and device:
            found = self._catalogue.find(model)
            unknown = DeviceIdentity(device, type="?", network="?")
            record = DeviceRecord(unknown, found.name, found.table, self.server)
            self._admit(device, record, time)
        return record

    def _admit(self, device: str, record: DeviceRecord, time: float) -> None:
        """Remember a device; who was silent longest is forgotten where there are too many."""
        record.heard(time)
        self.devices.pop(device, None)
        self.devices[device] = record
        while len(self.devices) > MOST_DEVICES:
            oldest = min(self.devices, key=lambda name: self.devices[name].heard_at)
            del self.devices[oldest]

    def _tell_choice(self, record: DeviceRecord, time: float, row: int) -> None:
        choice = record.choice(row)
        local = row == record.table.local
        where = (
            "runs everything itself"
            if local
            else (f"cuts at {choice['point_name']}, {choice['codec']}")
        )
        self._tell(time, "choice", record.identity.device, where)

    def _tell_seldom(self, time: float, kind: str, device: str, text: str) -> None:
        """An event that may come in bursts: told once in a few seconds for each kind and device."""
        key = (kind, device)
        if time - self._said.get(key, -_QUIET) >= _QUIET:
            self._said[key] = time
            if len(self._said) > 4 * MOST_DEVICES:
                self._said.clear()
            self._tell(time, kind, device, text)

    def _tell(self, time: float, kind: str, device: str, text: str) -> None:
        self.told += 1
        self.events.append(FleetEvent(self.told, time, kind, device, text[:500]))


def _pool_name(key: PoolKey) -> str:
    names = {"everyone": "the server", "group": "group", "network": "network"}
    kind, _, rest = key.scope.partition(":")
    return f"{names.get(kind, kind)} {rest}".strip() + f" ({key.part})"
