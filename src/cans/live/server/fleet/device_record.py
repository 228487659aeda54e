"""What a server remembers of one device, to show it: bounded, and never asked by the learner."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, NamedTuple

from cans.learning import DeviceIdentity, PartitionTable
from cans.live.wire.account import FELL_BACK, NO_SERVER, Account, PlayedRound

MOST_ROUNDS = 120  # inferences kept of a device
MOST_CHANGES = 100  # changes of choice kept of a device
SILENT_SECONDS = 30.0  # a device that neither speaks nor listens for so long is gone


class SeenRound(NamedTuple):
    """An inference and when it was answered, by the server's clock."""

    time: float
    played: PlayedRound


class DeviceRecord:
    """One device, as it told itself and as its requests showed."""

    def __init__(
        self, identity: DeviceIdentity, model: str, table: PartitionTable, server: str = ""
    ) -> None:
        self.identity = identity
        self.model = model  # its name
        self.server = server  # that it joined
        self.table = table
        self.local, self._choices = table.local, table.choices  # asked for at every look
        pairs = zip(table.point_of, table.codec_of, strict=True)
        self.rows_of = {pair: row for row, pair in enumerate(pairs)}  # (point, codec) -> row
        self._input_rows = [row for row, point in enumerate(table.point_of) if point == 0]
        work = table.front.mean(axis=1)
        self.cut_shares = [round(float(each), 4) for each in work / (work[-1] or 1.0)]
        self.version = 0  # of this record: goes up with every change that is worth showing
        self.joined_at = self.heard_at = 0.0
        self.listening = 0  # streams of news it holds open: their end tells when it goes
        self.inferences = 0
        self.fallbacks = 0
        self.uploads = 0
        self.refused = 0
        self.row: int | None = None  # the choice taken last
        self.took_at = 0.0
        self.no_server = False  # it could ask no server when it told last
        self.rounds: deque[SeenRound] = deque(maxlen=MOST_ROUNDS)
        self.counted = 0  # rounds ever kept, to tell which ones are new
        self.changes: deque[tuple[float, int]] = deque(maxlen=MOST_CHANGES)
        self.told_gone = False  # an event has said so
        self.why = ""
        self.predicted_ms: tuple[float, ...] = ()
        self.width_ms: tuple[float, ...] = ()
        self.saved_local_ms = 0.0  # against running everything here, as it was estimated then
        self.saved_offload_ms = 0.0

    # --- written ---

    def heard(self, time: float) -> None:
        self.heard_at = max(self.heard_at, time)

    def changed(self) -> None:
        self.version += 1

    def took(self, row: int, time: float) -> bool:
        """A choice was seen; whether it is another one than before, and the latest."""
        if time < self.took_at:
            return False  # an account tells of what requests have shown already
        another, self.row, self.took_at = row != self.row, row, time
        self.version += another
        return another

    def told(self, account: Account, time: float) -> bool:
        """Take in an account; whether the choice is another one than was known. The inferences that
        are new are the last ones of `rounds`."""
        if account.predicted_ms and len(account.predicted_ms) == self._choices:
            self.predicted_ms, self.width_ms = account.predicted_ms, account.width_ms
        if account.why:
            self.why = account.why
        changed = False
        for played in account.rounds:
            if played.row >= self._choices:
                continue  # of a table we no longer have
            at = max(time - played.age_ms / 1e3, self.rounds[-1].time if self.rounds else 0.0)
            changed = self.took(played.row, at) or changed
            if not self.changes or self.changes[-1][1] != played.row:
                self.changes.append((at, played.row))
            self.rounds.append(SeenRound(at, played))
            self.counted += 1
            self.fallbacks += bool(played.outcome & FELL_BACK)
            self.no_server = bool(played.outcome & NO_SERVER)
            self._save(played)
        self.inferences = max(self.inferences, account.inferences)
        self.heard(time)
        self.changed()
        return changed

    def _save(self, played: PlayedRound) -> None:
        if self.predicted_ms:
            self.saved_local_ms += self.local_ms - played.total_ms
            self.saved_offload_ms += self.offload_ms - played.total_ms

    # --- read ---

    @property
    def local_ms(self) -> float:
        """What always running everything on the device is expected to take."""
        return self.predicted_ms[self.local]

    @property
    def offload_ms(self) -> float:
        """What always sending the input, in the best codec, is expected to take."""
        return min(self.predicted_ms[row] for row in self._input_rows)

    def state(self, now: float) -> str:
        """offloading, local, breaker (its server cannot be asked), gone or new."""
        if not self.listening and now - self.heard_at > SILENT_SECONDS:
            return "gone"
        if self.row is None:
            return "new"
        if self.row == self.local:
            return "breaker" if self.no_server else "local"
        return "offloading"

    def history(self) -> list[tuple[float, int]]:
        """When which choice was taken, oldest first; the last one may not be accounted for yet."""
        known = list(self.changes)
        if self.row is not None and (not known or known[-1][1] != self.row):
            known.append((self.took_at, self.row))
        return known

    def latency_ms(self) -> float | None:
        """Median of the last few inferences; None: none is known."""
        first = max(len(self.rounds) - 9, 0)
        last = sorted(each.played.total_ms for each in islice(self.rounds, first, None))
        return last[len(last) // 2] if last else None

    def choice(self, row: int) -> dict[str, Any]:
        point = self.table.point_of[row]
        codec = "" if row == self.local else self.table.codec_of[row]
        return {"row": row, "point": point, "point_name": self.table.points[point], "codec": codec}
