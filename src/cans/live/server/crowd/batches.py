"""Which back-ends run together: requests of one kind that already wait, where that is faster.

Nobody waits for company. The first time that requests of a model at a point wait behind each other
their back-end is tried in the background: a batch must give every request what it gets alone, or is
never used, and how long it takes is measured. From then on what really happens is counted too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from cans.live.server.backends import Work
from cans.models.run import background

_log = logging.getLogger(__name__)
WORTH = 0.9  # of the time of single runs that a batch takes at most
_SMOOTHING = 0.2  # weight of the newest measurement
_DISTURBED = 2.0  # a batch that took so many times what was expected counts no more than this
_FORGIVEN = 0.999  # what was too slow is tried again after some hundreds of chances
_MOST_KINDS = 1024


class _Kind:
    """What is known of one model at one point."""

    def __init__(self) -> None:
        self.ratio: dict[int, float] = {}  # by size: time over that of as many single runs
        self.alone_ms = 0.0  # a single run; 0: none was timed

    def takes_ms(self, size: int) -> float:
        return self.ratio[size] * size * self.alone_ms if size > 1 else self.alone_ms


class Batches:
    """All methods are called by one thread at a time; what is tried comes in when it is done."""

    def __init__(
        self,
        most: int,
        in_background: Callable[[Callable[[], None], str], object] = background.start,
    ) -> None:
        """`most`: requests that may run together."""
        self.most = most
        self._start = in_background
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self.requests = 0  # that ran together with others

    def size(self, work: Work, remaining_ms: Sequence[float]) -> int:
        """How many of the requests that wait run together now, the first of them alone being 1;
        `remaining_ms` are their deadlines in turn, and nobody is made late."""
        if len(remaining_ms) < 2 or work.model.rows is not None:
            return 1
        key = (work.model.digest, work.point)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) < _MOST_KINDS:
                self._kinds[key] = kind = _Kind()
                self._start(partial(self._try, kind, work), f"cans-batch-{work.point}")
            return 1
        if not kind.ratio or not kind.alone_ms:
            return 1
        possible = [each for each in kind.ratio if each <= len(remaining_ms)]
        good = [
            each
            for each in possible
            if kind.ratio[each] <= WORTH and kind.takes_ms(each) <= min(remaining_ms[:each])
        ]
        for each in possible:
            if kind.ratio[each] > WORTH:
                kind.ratio[each] *= _FORGIVEN
        return min(good, key=lambda each: kind.ratio[each], default=1)

    def takes_ms(self, work: Work, size: int = 1) -> float:
        """How long so many take together; 0: not known."""
        kind = self._kinds.get((work.model.digest, work.point))
        return 0.0 if kind is None or (size > 1 and size not in kind.ratio) else kind.takes_ms(size)

    def ran(self, work: Work, size: int, milliseconds: float) -> None:
        """So many have run together."""
        kind = self._kinds.get((work.model.digest, work.point))
        self.requests += size if size > 1 else 0
        if kind is None:
            return
        if size == 1:
            before = kind.alone_ms or milliseconds
            kind.alone_ms = before + _SMOOTHING * (milliseconds - before)
        elif size in kind.ratio and kind.alone_ms:
            found = milliseconds / (size * kind.alone_ms)
            found = min(found, _DISTURBED * kind.ratio[size])
            kind.ratio[size] += _SMOOTHING * (found - kind.ratio[size])

    def failed(self, work: Work) -> None:
        """A batch could not be run: none is again."""
        kind = self._kinds.get((work.model.digest, work.point))
        if kind is not None:
            kind.ratio = {}

    def _try(self, kind: _Kind, work: Work) -> None:
        kind.ratio = work.model.executor.try_batches(work.point, self.most)
        sizes = {size: round(ratio, 3) for size, ratio in kind.ratio.items()}
        what = {"model": work.model.name, "point": work.point, "time_over_single_runs": sizes}
        _log.info("batches tried" if sizes else "cannot run in batches", extra=what)


def deadlines(works: Sequence[Work], waited_ms: Sequence[float]) -> list[float]:
    """Milliseconds that are left of each."""
    return [
        inf if each.remaining_ms is None else each.remaining_ms - waited
        for each, waited in zip(works, waited_ms, strict=True)
    ]
