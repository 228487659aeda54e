"""Hands cells to workers in batches that are worth the way, and takes back what they give.

Handing over a batch costs some milliseconds on a cluster. A batch is half a second of work, as the
batches before it showed, so that this stays below 5 %; towards the end batches become smaller, so
that all workers finish together.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

from cans.errors import InputError
from cans.simulation.sweep.cells import Batch, Played, code_digest, play_batch
from cans.simulation.sweep.grid import Cell
from cans.simulation.workers.workers import TRIES, WorkerLost, Workers, gave_up, not_installed

BATCH_S = 0.5
AHEAD = 2  # batches per worker that are handed over before they are needed
GUESS_S = {"fast": 1e-5, "reference": 4e-4}  # per round, before anything was measured


class Sizes:
    """How many of the next cells make a batch."""

    def __init__(self, cells: Sequence[Cell], engine: str) -> None:
        self._waiting = deque(cells)
        self._guess = GUESS_S[engine]
        self._per_round: dict[str, float] = {}
        self._left_rounds = sum(cell.study.settings.rounds for cell in cells)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def learn(self, cells: Sequence[Cell], seconds: Sequence[float]) -> None:
        """What cells took."""
        for cell, taken in zip(cells, seconds, strict=True):
            name, rounds = cell.study.settings.method.name, cell.study.settings.rounds
            before = self._per_round.get(name, taken / rounds)
            self._per_round[name] = 0.7 * before + 0.3 * taken / rounds

    def take(self, workers: int) -> tuple[Cell, ...]:
        """The next batch: `BATCH_S` of work, or a fair share of what is left if that is less."""
        known = self._per_round.values()
        usual = sum(known) / len(known) if known else self._guess
        wanted = min(BATCH_S, usual * self._left_rounds / (2 * workers))
        taken: list[Cell] = []
        while self._waiting and (not taken or wanted > 0):
            cell = self._waiting.popleft()
            settings = cell.study.settings
            taken.append(cell)
            self._left_rounds -= settings.rounds
            wanted -= self._per_round.get(settings.method.name, usual) * settings.rounds
        return tuple(taken)


def run_cells(
    cells: Sequence[Cell],
    engine: str,
    traces: Mapping[Path, bytes],
    workers: Workers,
    keep: Callable[[Played], None],
) -> float:
    """Play all cells, handing each finished batch to `keep`; returns the share of the workers'
    time, from the first answer on, that was not spent in cells."""
    sizes, pending = Sizes(cells, engine), {}
    tries: dict[Future[Played], int] = {}
    answered, busy, many = 0.0, 0.0, workers.count()

    def hand_over(batch: Batch, tried: int) -> None:
        future = workers.submit(play_batch, batch)
        pending[future], tries[future] = batch, tried

    while sizes or pending:
        many = max(workers.count(), 1)
        while sizes and len(pending) < AHEAD * many:
            hand_over(Batch(sizes.take(many), engine, traces), 1)
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            batch, tried = pending.pop(future), tries.pop(future)
            try:
                played = _checked(workers, future)
            except WorkerLost as error:
                if tried == TRIES:
                    raise gave_up(error) from None
                hand_over(batch, tried + 1)
                continue
            sizes.learn(batch.cells, played.seconds)
            keep(played)
            if answered:
                busy += sum(played.seconds)
            else:  # the first answers include starting and compiling
                answered = time.perf_counter()
    elapsed = time.perf_counter() - answered
    return max(0.0, 1.0 - busy / (elapsed * many)) if answered and elapsed else 0.0


def _checked(workers: Workers, future: Future[Played]) -> Played:
    try:
        played = workers.result(future)
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    if played.code != code_digest():
        raise InputError(
            "a worker has another version of cans-edge, numpy or numba, which may give other"
            " numbers: install the same versions on the cluster"
        )
    return played
