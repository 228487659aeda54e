"""What happens on a server, for whoever looks at it: the page, `cans status`, metrics.

The request path appends to a bounded queue and goes on; a thread of the recorder takes it from
there. When nobody can keep up, the oldest happenings are dropped and counted, never a request.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from cans.learning import DeviceIdentity, PoolKey
from cans.live.wire.account import Account

MOST_WAITING = 1 << 16


class Joined(NamedTuple):
    time: float  # seconds on the server's clock, as everywhere here
    identity: DeviceIdentity
    model: str  # digest


class Answered(NamedTuple):
    """A back-end has run for a device."""

    time: float
    device: str
    model: str
    point: int
    codec: str
    queue_ms: float
    compute_ms: float
    trace: str = ""  # W3C traceparent; empty: the device does not trace


class Accounted(NamedTuple):
    """A device has told of its own inferences."""

    time: float
    device: str
    account: Account


class Merged(NamedTuple):
    time: float
    device: str
    key: PoolKey
    epoch: int
    observations: int  # in the upload
    refused: str  # why it was kept out; empty: it was merged


class Doubted(NamedTuple):
    """A device is believed less than before about a pool, or again as much as others."""

    time: float
    device: str
    key: PoolKey
    text: str


class Rejected(NamedTuple):
    """A call was answered with an error."""

    time: float
    method: str
    code: str
    reason: str
    device: str  # empty: not known


class Watching(NamedTuple):
    """A device's stream of news has begun or ended; its end tells when a device goes."""

    time: float
    device: str
    begun: bool


Happening = Joined | Answered | Accounted | Merged | Doubted | Rejected | Watching


class Happenings:
    """A bounded queue; `add` may be called from any thread and never waits."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._queue: deque[Happening] = deque(maxlen=most)  # 0: nothing is kept at all
        self._added = 0
        self._taken = 0

    def add(self, happening: Happening) -> None:
        self._added += 1
        self._queue.append(happening)

    def take(self) -> list[Happening]:
        """All that has come since the last time, oldest first."""
        found = []
        while self._queue:
            found.append(self._queue.popleft())
        self._taken += len(found)
        return found

    @property
    def dropped(self) -> int:
        """Happenings that nobody took in time."""
        return max(self._added - self._taken - len(self._queue), 0)
