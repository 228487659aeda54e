"""Places that devices have asked for and not taken yet. No clock: times, in seconds, come in.

A place holds no worker. It counts in the wait that others are told, so that devices which ask at
the same moment hear of each other. Hence the little that a liar could gain: it has one place at a
time, for a moment, of as many milliseconds as the server itself has measured; and one that let its
place lapse is not counted again before it has sent a request.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

LONGEST_S = 2.0
MOST = 256  # places at a time
MOST_REMEMBERED = 10_000  # who let one lapse


class _Place(NamedTuple):
    until: float
    model: str
    milliseconds: float


class Reservations:
    """One place for each that asks; `who` is a device, or a connection that may speak for any."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._lapsed: OrderedDict[str, None] = OrderedDict()

    def reserve(self, who: str, model: str, milliseconds: float, hold_s: float, now: float) -> None:
        """Keep a place, instead of the one it may have."""
        self._expire(now)
        self._places.pop(who, None)
        if who in self._lapsed or len(self._places) >= MOST:
            return
        self._places[who] = _Place(now + min(hold_s, LONGEST_S), model, milliseconds)

    def taken(self, who: str) -> None:
        """A request has come: its place is not needed, and its word counts again."""
        self._places.pop(who, None)
        self._lapsed.pop(who, None)

    def withdrawn(self, who: str) -> None:
        self._places.pop(who, None)

    def announced(self, model: str, but: str, now: float) -> list[float]:
        """Milliseconds of the places that others have, in the order in which they asked."""
        if not self._places:
            return []
        self._expire(now)
        return [
            each.milliseconds
            for who, each in self._places.items()
            if who != but and each.model == model
        ]

    def _expire(self, now: float) -> None:
        for who in [who for who, each in self._places.items() if each.until < now]:
            del self._places[who]
            self._lapsed[who] = None
            if len(self._lapsed) > MOST_REMEMBERED:
                self._lapsed.popitem(last=False)
