"""Laws of choosing: what is allowed, ties, determinism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cans.learning.choice import Latencies
from cans.learning.laws.tiny_fleet import Case, TinyFleet
from cans.learning.table import PartitionTable


def chooses_what_is_allowed(case: Case) -> None:
    """Whatever is forbidden is not chosen, as long as one choice is not."""
    fleet = TinyFleet(case)
    for _ in range(20):
        device = case.below(fleet.devices)
        allowed = np.array([case.draw() < 0.4 for _ in range(case.table.choices)])
        allowed[case.below(case.table.choices)] = True
        choice = fleet.learners[device].select(case.context()._replace(allowed=allowed))
        assert allowed[choice.row], f"chose {choice.row}, allowed were {np.flatnonzero(allowed)}"
        fleet.learners[device].observe(choice, Latencies(*(case.milliseconds(),) * 3))


def ties_take_the_lower_index(case: Case) -> None:
    """Two equal rows have equal scores in every round: the later one is never chosen."""
    twin = 1 + case.below(case.table.choices - 2)
    case = replace(case, table=with_twin(case.table, twin))
    rounds = TinyFleet(case).play(40)
    assert all(each.choice.row != twin + 1 for each in rounds)
    assert all(each.choice.tied for each in rounds if each.choice.row == twin)


def with_twin(table: PartitionTable, row: int) -> PartitionTable:
    """The same table with one row twice."""
    front, link, server = (
        np.insert(columns, row, columns[row], axis=0)
        for columns in (table.front, table.link, table.server)
    )
    points = [*table.points[:row], "twin", *table.points[row:]]
    return PartitionTable(table.model, points, front, link, server)


def is_deterministic(case: Case) -> None:
    """The same draws give the same rounds and the same state, to the last bit."""
    tape = [case.draw() for _ in range(2000)]
    first, second = (TinyFleet(replace(case, draw=iter(tape).__next__)) for _ in range(2))
    ours, theirs = first.play(30), second.play(30)
    assert [r.choice.row for r in ours] == [r.choice.row for r in theirs]
    for one, other in zip(first.learners, second.learners, strict=True):
        for a, b in zip(one.records(), other.records(), strict=True):
            assert a.local.equals(b.local, 0.0)
            assert a.synced.equals(b.synced, 0.0)
