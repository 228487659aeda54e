"""A clock that a change of the system's time cannot move."""

from __future__ import annotations

import time


class Clock:
    """Seconds since 1970 as they were when it started, advanced by the monotonic clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset

    def follow(self, server_time: float) -> None:
        """Go by another's clock from now on (a device goes by its server's)."""
        self._offset = server_time - time.monotonic()
