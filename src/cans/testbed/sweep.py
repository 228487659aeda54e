"""Every choice of every device, tried: what the best fixed choice would have been.

All choices are tried on one device of each kind (type, slow-down, network); the few best of them
again on every device, in turn, so that the last word is with the device itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from cans.errors import RunError
from cans.testbed.fleet import Fleet
from cans.testbed.layout import ChoiceInfo, DeviceSeat

FINALISTS = 4
FINAL_RUNS = 8

Record = Callable[[dict[str, object], DeviceSeat], None]


@dataclass(frozen=True)
class Swept:
    """What a sweep found, by device."""

    best: dict[int, int]  # device -> row
    median_ms: dict[int, dict[int, float]]  # device -> row -> total


def sweep(fleet: Fleet, choices: Sequence[ChoiceInfo], runs: int, record: Record) -> Swept:
    """Try everything; every run is recorded."""
    kinds: dict[tuple[str, float, str], list[DeviceSeat]] = defaultdict(list)
    for seat in fleet.seats:
        kinds[seat.group.type, seat.group.slowdown, seat.group.network].append(seat)
    best: dict[int, int] = {}
    medians: dict[int, dict[int, float]] = {}
    for alike in kinds.values():
        first = _tried(fleet, alike[0], [each.row for each in choices], runs, record)
        finalists = sorted(first, key=lambda row: first[row])[:FINALISTS]
        for seat in alike:
            final = _tried(fleet, seat, finalists, FINAL_RUNS, record)
            best[seat.index] = min(final, key=lambda row: final[row])
            medians[seat.index] = {**first, **final}
    for seat in fleet.seats:
        fleet.force(seat.index, None)
    return Swept(best, medians)


def _tried(
    fleet: Fleet, seat: DeviceSeat, rows: Sequence[int], runs: int, record: Record
) -> dict[int, float]:
    """Median total of each choice; choices take turns, so that a busy moment hits all alike."""
    totals: dict[int, list[float]] = defaultdict(list)
    for _ in range(runs):
        for row in rows:
            fleet.force(seat.index, row)
            answer = fleet.infer(seat.index)
            if "error" in answer or answer["fallback"]:
                raise RunError(f"{seat.name}: {answer.get('error') or answer['fallback']}")
            record(answer, seat)
            totals[row].append(answer["waited_ms"])
    return {row: median(found) for row, found in totals.items()}
