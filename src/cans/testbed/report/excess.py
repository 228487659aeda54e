"""Where a policy loses against the best fixed choice: by other choices, or by the same one, slower.

Both are measured in the same rounds on the same kind of device, so that every inference has a
counterpart. Contributions add up: the mean excess of a window is what other choices cost plus what
the same choice cost more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from cans.testbed.report.records import Row, latency_ms

WINDOWS = (0, 10, 30, 100, 300)  # rounds at which one ends and the next begins
PARTS = ("front_ms", "link_ms", "server_ms")


def excess(rows: Sequence[Row], fixed: Sequence[Row], rounds: int) -> list[dict[str, Any]]:
    """Window by window; a window that the run did not reach is left out."""
    counterpart = _by_inference(fixed)
    found = []
    for start, end in pairwise(WINDOWS):
        pairs = [
            (row, counterpart[_inference(row)])
            for row in rows
            if start <= row["round"] < end and not row["error"] and _inference(row) in counterpart
        ]
        if pairs:
            found.append({"from_round": start, "to_round": min(end, rounds), **_window(pairs)})
    return found


def _window(pairs: Sequence[tuple[Row, Row]]) -> dict[str, Any]:
    others = [(row, best) for row, best in pairs if _choice(row) != _choice(best)]
    same = [(row, best) for row, best in pairs if _choice(row) == _choice(best)]
    return {
        "excess_ms": sum(map(_difference, pairs)) / len(pairs),
        "other_choice_ms": sum(map(_difference, others)) / len(pairs),
        "same_choice_ms": sum(map(_difference, same)) / len(pairs),
        "other_choices": len(others) / len(pairs),
        "slower_with_same_choice": _slower(same) if same else None,
    }


def _slower(same: Sequence[tuple[Row, Row]]) -> dict[str, float]:
    """Mean milliseconds by which the same choice took longer, by where they passed."""
    parts = {
        part: fmean((row[part] or 0.0) - (best[part] or 0.0) for row, best in same)
        for part in PARTS
    }
    total = fmean(map(_difference, same))
    return {"total_ms": total, **parts, "rest_ms": total - sum(parts.values())}


def _difference(pair: tuple[Row, Row]) -> float:
    return latency_ms(pair[0]) - latency_ms(pair[1])


def _inference(row: Row) -> tuple[str, int]:
    return row["device"], row["round"]


def _choice(row: Row) -> tuple[int, str]:
    return row["point"], row["codec"]


def _by_inference(rows: Sequence[Row]) -> dict[tuple[str, int], Row]:
    """One row each; a fixed choice that ran several times in a round counts with its mean."""
    grouped: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if not row["error"]:
            grouped[_inference(row)].append(row)
    return {
        key: {
            **alike[0],
            **{
                name: fmean(row[name] or 0.0 for row in alike)
                for name in ("waited_ms", *PARTS)
            },
        }
        for key, alike in grouped.items()
    }  # fmt: skip
