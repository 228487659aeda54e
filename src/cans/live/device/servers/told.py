"""What the server of a device told last of how busy it is."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from cans.learning.congestion import Load, aged, not_of_this_moment


class _Told(NamedTuple):
    server: int
    load: Load
    at: float


class ToldLoad:
    """Any thread may tell; the last word counts, and less the older it is."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last: _Told | None = None

    def tell(self, server: int, load: Load | None) -> None:
        """This came with a message of a server; None: nothing did."""
        if load is not None:
            self._last = _Told(server, load, self._clock())

    def now(self, server: int | None) -> Load | None:
        """The load to count with; None: this server has not told any."""
        last = self._last
        if last is None or last.server != server:
            return None
        return not_of_this_moment(aged(last.load, self._clock() - last.at))

    @property
    def at(self) -> float:
        """When something was told last, on the monotonic clock; 0: never."""
        return 0.0 if self._last is None else self._last.at
