"""Every inference as one row: the tidy file of a run, and the trace made from it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cans.simulation.worlds.trace_file import MEASURED, NUMBERS, TEXT
from cans.testbed.run.layout import ChoiceInfo, DeviceSeat

Row = dict[str, Any]
SWEEP = "sweep"  # the label of forced runs before the first round
DIGITS = 3  # of milliseconds in a trace: clocks are not truer than a microsecond
FIXED = "best fixed"  # the label of the choice that was best in the sweep, forced

_COPIED = (
    *("point", "point_name", "codec", "front_ms", "link_ms", "server_ms", "queue_ms", "total_ms"),
    *("waited_ms", "predicted_ms", "bytes_up", "answered_by", "fallback", "learned", "why"),
)


def row_of(
    answer: dict[str, Any], seat: DeviceSeat, *, model: str, policy: str, round_: int, mbps: float
) -> Row:
    """A device's report as a row. The energy proxy counts what the device itself spends."""
    row: Row = {
        "time": answer.get("time"),
        "model": model,
        "policy": policy,
        "device": seat.name,
        "device_type": seat.group.type,
        "network": seat.group.network,
        "mbps": mbps,
        "round": round_,
        "error": answer.get("error", ""),
        **{name: answer.get(name) for name in _COPIED},
    }
    front, link = row["front_ms"] or 0.0, row["link_ms"] or 0.0
    row["energy_mj"] = front * seat.group.watts + link * seat.group.radio_watts
    return row


def latency_ms(row: Row) -> float:
    """What the caller waited."""
    return float(row["waited_ms"])


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_trace(path: Path, rows: Iterable[Row], choices: Sequence[ChoiceInfo]) -> int:
    """What was measured, for `cans simulate --world trace`; returns how many rows that are.

    A row that fell back to the device, or was not answered, says nothing about its choice.
    """
    info = {(each.point, each.codec): each for each in choices}
    local = choices[-1]
    written = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, (*TEXT, *NUMBERS))
        writer.writeheader()
        for row in rows:
            if row["error"] or row["fallback"]:
                continue
            choice = local if row["point"] == local.point else info[row["point"], row["codec"]]
            writer.writerow(
                {
                    "device_type": row["device_type"],
                    "network": f"{row['network']}@{row['mbps']:g}",
                    "point": choice.label,
                    "bytes": choice.bytes,
                    "front_macs": choice.front_macs,
                    "back_macs": choice.back_macs,
                    **{name: round(row[name] or 0.0, DIGITS) for name in MEASURED},
                }
            )
            written += 1
    return written
