"""What a server tells of how busy it is: with every answer, to whoever asks, and to those who
watch and have not heard of it while it is in use.

A policy that is not aware of load hears nothing, and its messages are as they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic

from cans.errors import Refused
from cans.learning.congestion import ASK_ABOVE, Load
from cans.live.server.backends import BackEndPool
from cans.live.server.crowd.reservations import Reservations
from cans.live.server.door.identity import Caller
from cans.live.wire.load import QuoteRequest

PRESENT_S = 60.0  # a device that was heard of in so long belongs to the fleet
MOST_PRESENT = 10_000
TICK_S = 0.2
TELL_AFTER_S = 1.0  # those who watch hear of a server in use so often, if by nothing else
MOST_PER_TICK = 20  # of them: a hundred messages a second, however many devices watch
WORK_S = 10.0  # between requests that are sent for the server's sake, of all devices
WORK_SOONER_S = 1.0  # ... while devices take it for well again


class ServerLoad:
    """All methods belong to one event loop."""

    def __init__(
        self, pool: BackEndPool, tells: bool, clock: Callable[[], float] = monotonic
    ) -> None:
        """`tells`: the fleet's policy is aware of load."""
        self._pool = pool
        self.tells = tells
        self._clock = clock
        self._heard: dict[str, float] = {}  # device -> when
        self._told: dict[str, float] = {}
        self._present, self._counted_at = 1, 0.0
        self._reservations = Reservations()
        self._worked_at = -WORK_S
        self._last_model = ""
        self._in_use = asyncio.Event()  # so much that those who watch are to hear of it

    def heard(self, device: str) -> None:
        """A device of the fleet has said something."""
        if len(self._heard) >= MOST_PRESENT and device not in self._heard:
            return
        self._heard[device] = self._clock()

    def came(self, device: str, model: str, caller: Caller) -> None:
        """A request for a back-end has come."""
        self.heard(device)
        self._last_model = model
        self._reservations.taken(_whose(device, caller))

    def told(self, device: str = "", model: str = "") -> Load | None:
        """The load without this device's own requests; None: it is not told."""
        return self._load(device, model, device)

    def _load(self, device: str, model: str, whose: str) -> Load | None:
        if not self.tells:
            return None
        now, model = self._clock(), model or self._last_model
        if device:
            self._told[device] = now
        announced = self._reservations.announced(model, whose, now)
        load = self._pool.load(model, device, self._joined(now), announced)
        if load is not None and max(load.utilisation, load.recent) >= ASK_ABOVE and load.joined > 1:
            self._in_use.set()
        return load

    def _joined(self, now: float) -> int:
        if now - self._counted_at >= 1.0:
            self._counted_at = now
            self._heard = {who: at for who, at in self._heard.items() if now - at < PRESENT_S}
            self._told = {who: at for who, at in self._told.items() if who in self._heard}
            self._present = max(len(self._heard), 1)
        return max(self._present, len(self._heard))

    # --- quotes ---

    def quote(self, request: QuoteRequest, caller: Caller) -> tuple[Load | None, bool]:
        """The load of this moment, one caller after the other, and whether work is welcome."""
        if not self.tells:
            raise Refused("this server's policy does not ask for quotes", "UNIMPLEMENTED")
        device, whose, now = request.device, _whose(request.device, caller), self._clock()
        self.heard(device)
        if request.withdrawn:
            self._reservations.withdrawn(whose)
            return None, False
        if request.work:
            return None, self._grant(request.hold_ms / 1e3, now)
        load = self._load(device, request.model, whose)
        expected = self._pool.expected_ms(request.model, request.point, request.codec)
        hold_s = request.hold_ms / 1e3
        self._reservations.reserve(whose, request.model, expected, hold_s, now)
        return load, False

    def _grant(self, every_s: float, now: float) -> bool:
        """One device of the fleet may send work, once in so many seconds."""
        if now - self._worked_at < min(max(every_s, WORK_SOONER_S), WORK_S):
            return False
        self._worked_at = now
        return True

    # --- telling ---

    async def keep_telling(
        self, watching: Callable[[], Iterable[str]], tell: Callable[[str], None]
    ) -> None:
        """While the server is in use, have those told who watch and have not heard of it."""
        while self.tells:
            await self._in_use.wait()
            await asyncio.sleep(TICK_S)
            self._in_use.clear()
            self.told()
            if not self._in_use.is_set():
                continue
            now = self._clock()
            silent = [who for who in watching() if now - self._told.get(who, 0.0) >= TELL_AFTER_S]
            silent.sort(key=lambda who: self._told.get(who, 0.0))
            for who in silent[:MOST_PER_TICK]:
                tell(who)


def _whose(device: str, caller: Caller) -> str:
    """Whose place it is: a device by its token, or a connection that may speak for any."""
    return caller.account or device
