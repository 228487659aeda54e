"""Points that are used often deserve fused halves; building them costs time and memory."""

from __future__ import annotations

from collections import Counter

from cans.live.split import HalfRunner

OFTEN = 20


class Usage:
    """Counts uses of each point and has the halves of popular ones built in the background."""

    def __init__(self, executor: HalfRunner, side: str) -> None:
        self._executor = executor
        self._side = side
        self._uses: Counter[int] = Counter()
        self._asked: set[int] = set()

    def used(self, point: int) -> None:
        self._uses[point] += 1
        if self._uses[point] >= OFTEN and point not in self._asked:
            self._asked.add(point)
            if not self._executor.ready(point, self._side):
                self._executor.prepare_in_background(point, (self._side,))
