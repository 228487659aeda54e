"""Every choice of every device, tried: what the best fixed choice would have been.

All choices are tried on one device of each kind (type, slow-down, network); the few best of them
again on every device of the kind, in turn. Devices of a kind are the same machine with the same
link, so they have one best choice, and it is found from what all of them measured: neighbours
often differ by less than the noise of one device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from cans.errors import RunError
from cans.testbed.run.fleet import ProcessFleet
from cans.testbed.run.layout import ChoiceInfo, DeviceSeat

FINALISTS = 5
OFTENER = 6  # times as many runs of a finalist, on all devices of a kind together

OnAnswer = Callable[[dict[str, object], DeviceSeat], None]


@dataclass(frozen=True)
class Swept:
    """What a sweep found, by device."""

    best: dict[int, int]  # device -> row
    mean_ms: dict[int, dict[int, float]]  # device -> row -> total, of its kind


def sweep(fleet: ProcessFleet, choices: Sequence[ChoiceInfo], runs: int, record: OnAnswer) -> Swept:
    """Try everything; every run is recorded."""
    best: dict[int, int] = {}
    means: dict[int, dict[int, float]] = {}
    for alike in kinds(fleet.seats):
        first = tried(fleet, alike[:1], [each.row for each in choices], runs, record)
        finalists = sorted(first, key=lambda row: first[row])[:FINALISTS]
        turns = max(OFTENER * runs // len(alike), 2)
        final = tried(fleet, alike, finalists, turns, record)
        for seat in alike:
            best[seat.index] = min(final, key=lambda row: final[row])
            means[seat.index] = {**first, **final}
    for seat in fleet.seats:
        fleet.force(seat.index, None)
    return Swept(best, means)


def kinds(seats: Iterable[DeviceSeat]) -> list[list[DeviceSeat]]:
    """The devices of every kind: the same machine with the same link."""
    found: dict[tuple[str, float, str], list[DeviceSeat]] = defaultdict(list)
    for seat in seats:
        found[seat.group.type, seat.group.slowdown, seat.group.network].append(seat)
    return list(found.values())


def tried(
    fleet: ProcessFleet,
    seats: Iterable[DeviceSeat],
    rows: Sequence[int],
    runs: int,
    record: OnAnswer,
) -> dict[int, float]:
    """Mean total of each choice; choices take turns, so that a busy moment hits all alike."""
    totals: dict[int, list[float]] = defaultdict(list)
    alike = list(seats)
    for _ in range(runs):
        for seat in alike:
            for row in rows:
                fleet.force(seat.index, row)
                answer = fleet.infer(seat.index)
                if "error" in answer or answer["fallback"]:
                    raise RunError(f"{seat.name}: {answer.get('error') or answer['fallback']}")
                record(answer, seat)
                totals[row].append(answer["waited_ms"])
    return {row: trimmed_mean(found) for row, found in totals.items()}


def trimmed_mean(values: Sequence[float]) -> float:
    """Without the lowest and the highest tenth. Policies are compared by means; a median would leap
    between the two speeds of a processor that changes its clock, and a mean follows accidents."""
    cut = len(values) // 10
    return fmean(sorted(values)[cut : len(values) - cut])
