"""What a server runs by itself when the first device of a model joins: nobody has to be the one who
finds out how slow it is.

The device makes its own offline runs meanwhile, so that both are done before the first choice.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from cans.errors import CansError
from cans.learning.arithmetic.offline import own_choices
from cans.live.server.backends import BackEnds
from cans.live.server.catalogue import Catalogue
from cans.live.server.pools import Pools
from cans.live.split import SplitModel

_log = logging.getLogger(__name__)


class OwnRuns:
    """Once for every model, in the background."""

    def __init__(self, back_ends: BackEnds, pools: Pools, catalogue: Catalogue) -> None:
        self._back_ends = back_ends
        self._pools = pools
        self._catalogue = catalogue
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by digest

    def begin(self, model: SplitModel) -> None:
        """A device has joined."""
        if model.digest in self._tasks or not self._pools.books_all(model):
            return
        for digest, task in list(self._tasks.items()):  # models come and go
            if task.done() and not self._catalogue.offers(digest):
                del self._tasks[digest]
        self._tasks[model.digest] = asyncio.create_task(self._run(model))

    async def _run(self, model: SplitModel) -> None:
        offered = [row for row, work in enumerate(model.table.server) if work.any()]
        most = self._catalogue.terms.hyperparameters.offline_runs
        runs = []
        try:
            for choice in own_choices(offered, most):
                took_ms = await self._back_ends.try_choice(model, choice)
                if took_ms is not None:
                    runs.append((choice, took_ms))
        except CansError as error:  # too busy already, or the model takes no made-up tensors
            _log.info("no run by itself", extra={"model": model.name, "reason": str(error)})
        if runs:
            await self._pools.ran_by_itself(model, runs)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
