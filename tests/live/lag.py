"""How busy the machine is, for tests of time: what is late because of it is not late by us."""

from __future__ import annotations

import threading
import time
from collections import deque


class Lag:
    """How late a thread of this process wakes up, all the time: the machine's part in a delay."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=100_000)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while True:
            asleep = time.perf_counter()
            if self._over.wait(0.005):
                return
            awake = time.perf_counter()
            self._seen.append((awake, awake - asleep - 0.005))

    def worst_ms(self, since: float) -> float:
        """Of the time since then, by the performance counter."""
        late = [lag for awake, lag in list(self._seen) if awake >= since]
        return max(late, default=0.0) * 1e3

    def close(self) -> None:
        self._over.set()
        self._thread.join()
