"""How many requests, and bytes of them, may be in this process, in all and for each caller.

A place is taken before a request is read, for as many bytes as it may have, and is made smaller
when its size is known: a caller that announces much and sends nothing holds its own places only,
and one that sends more than it may have answered at a time is not read before it has an answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque

from cans.errors import Busy

MOST_INSIDE = 16  # requests of one caller that are read or answered at a time
MOST_WAITING = 256  # that are not yet read
WAIT_SECONDS = 5.0


_Waiting = tuple[int, int, asyncio.Future[None]]  # bytes, requests, and whom to tell


class Room:
    """Bytes to hand out. All methods belong to one event loop."""

    def __init__(self, total: int, each: int) -> None:
        self.total = total
        self.each = each
        self.used = 0
        self._used_by: dict[str, int] = {}
        self._inside: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()

    async def enter(self, caller: str, size: int) -> Place:
        """A place of so many bytes; `Busy` if there is none within a few seconds."""
        await self._take(caller, size, 1)
        return Place(self, caller, size)

    async def _take(self, caller: str, size: int, calls: int) -> None:
        if size > self.each:
            raise Busy(f"a request of {size} bytes; there is room for {self.each}")
        if not self._waiting and self._fits(caller, size, calls):
            self._add(caller, size, calls)
            return
        line = self._waiting.setdefault(caller, deque())
        if len(line) >= MOST_WAITING:
            raise Busy(f"{len(line)} requests of this caller are waiting to be read")
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append((size, calls, granted))
        self._grant()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                self._add(caller, -size, -calls)  # granted in the very moment of giving up
            else:
                self._forget(caller, granted)
            self._grant()
            if isinstance(error, TimeoutError):
                raise Busy("too many bytes of requests are on their way") from None
            raise

    def _fits(self, caller: str, size: int, calls: int) -> bool:
        if calls and self._inside[caller] >= MOST_INSIDE:
            return False
        mine = self._used_by.get(caller, 0)
        return self.used + size <= self.total and mine + size <= self.each

    def _add(self, caller: str, size: int, calls: int = 0) -> None:
        self.used += size
        self._used_by[caller] = self._used_by.get(caller, 0) + size
        self._inside[caller] += calls
        if not self._inside[caller] and not self._used_by[caller]:
            del self._inside[caller], self._used_by[caller]

    def _forget(self, caller: str, granted: asyncio.Future[None]) -> None:
        line = self._waiting.get(caller)
        if line is not None:
            kept = deque(each for each in line if each[2] is not granted)
            self._waiting[caller] = kept
            if not kept:
                del self._waiting[caller]

    def _grant(self) -> None:
        """Let in who waits and fits, one of each caller in turn."""
        progress = True
        while progress and self._waiting:
            progress = False
            for caller in list(self._waiting):
                line = self._waiting[caller]
                size, calls, granted = line[0]
                if not self._fits(caller, size, calls):
                    continue
                line.popleft()
                if line:
                    self._waiting.move_to_end(caller)
                else:
                    del self._waiting[caller]
                self._add(caller, size, calls)
                granted.set_result(None)
                progress = True


class Place:
    """Bytes that one request occupies, until it is left."""

    def __init__(self, room: Room, caller: str, size: int) -> None:
        self._room = room
        self._caller = caller
        self._size = size

    def shrink(self, size: int) -> None:
        """It needs no more than this."""
        if size < self._size:
            self._room._add(self._caller, size - self._size)
            self._size = size
            self._room._grant()

    async def grow(self, more: int) -> None:
        """It needs so many more bytes; `Busy` if there are none."""
        await self._room._take(self._caller, more, 0)
        self._size += more

    def leave(self) -> None:
        self._room._add(self._caller, -self._size, -1)
        self._room._grant()
