"""The fleet as documents, for the page and for `cans status`: plain values, in milliseconds."""

from __future__ import annotations

from math import isfinite
from typing import Any

from cans.errors import Refused
from cans.live.server.fleet.device_record import DeviceRecord, SeenRound
from cans.live.server.fleet.recorder import FleetEvent, Recorder

MOST_TOLD = 500  # devices in one answer of Status


def fleet_row(record: DeviceRecord, now: float) -> dict[str, Any]:
    """One device in a line."""
    known = bool(record.predicted_ms)
    return {
        "device": record.identity.device,
        "type": record.identity.type,
        "network": record.identity.network,
        "server": record.server,
        "model": record.model,
        "state": record.state(now),
        "choice": None if record.row is None else record.choice(record.row),
        "cut_share": None if record.row is None else record.cut_shares[record.row],
        "latency_ms": _plain(record.latency_ms()),
        "local_ms": _plain(record.local_ms) if known else None,
        "offload_ms": _plain(record.offload_ms) if known else None,
        "inferences": record.inferences,
        "fallbacks": record.fallbacks,
        "uploads": record.uploads,
        "refused": record.refused,
        "heard_s": round(max(now - record.heard_at, 0.0), 1),
    }


def rounds(seen: list[SeenRound]) -> list[list[float]]:
    """Inferences as short lists: time, front, wait, link, server, total, outcome, row."""
    return [
        [round(at, 3), _short(each.front_ms), _short(each.wait_ms), _short(each.link_ms),
         _short(each.server_ms), _short(each.total_ms), each.outcome, each.row]
        for at, each in seen
    ]  # fmt: skip


def device_document(record: DeviceRecord, now: float) -> dict[str, Any]:
    """All about one device: every choice with its prediction, the history, and why."""
    table = record.table
    choices = [
        {
            **record.choice(row),
            "predicted_ms": _plain(record.predicted_ms[row]) if record.predicted_ms else None,
            "width_ms": _plain(record.width_ms[row]) if record.width_ms else None,
            "bytes": table.bytes_of[row] if table.bytes_of else None,
        }
        for row in range(table.choices)
    ]
    return {
        **fleet_row(record, now),
        "joined_s": round(max(now - record.joined_at, 0.0), 1) if record.joined_at else None,
        "why": record.why,
        "points": list(table.points),
        "work": _work(record),
        "choices": choices,
        "changes": [{"time": at, **record.choice(row)} for at, row in record.history()],
        "rounds": rounds(list(record.rounds)),
    }


def _work(record: DeviceRecord) -> list[float]:
    """The share of the front-end's work that is done at each point, 0 to 1."""
    table = record.table
    shares = [0.0] * len(table.points)
    for row, point in enumerate(table.point_of):
        shares[point] = round(float(table.front[row].mean()), 4)
    largest = max(shares) or 1.0
    return [each / largest for each in shares]


def event_document(event: FleetEvent) -> dict[str, Any]:
    return {"number": event.number, "time": round(event.time, 3), "kind": event.kind,
            "device": event.device, "text": event.text}  # fmt: skip


def totals(recorder: Recorder) -> dict[str, Any]:
    """Sums over the fleet."""
    now = recorder.now()
    records = list(recorder.devices.values())
    states: dict[str, int] = {}
    for record in records:
        state = record.state(now)
        states[state] = states.get(state, 0) + 1
    return {
        "time": round(now, 3),
        "devices": len(records),
        "states": states,
        "inferences": sum(record.inferences for record in records),
        "per_second": round(recorder.rates.per_second(now), 2),
        "latency_ms": _plain(recorder.rates.latency_ms(now)),
        "requests": recorder.requests,
        "saved_local_s": round(sum(each.saved_local_ms for each in records) / 1e3, 2),
        "saved_offload_s": round(sum(each.saved_offload_ms for each in records) / 1e3, 2),
        "dropped": recorder.happenings.dropped,
    }


def status_document(recorder: Recorder, device: str, most: int) -> dict[str, Any]:
    """What `Status` answers; a device that nobody knows is refused."""
    recorder.digest()
    with recorder.lock:
        now = recorder.now()
        if device:
            record = recorder.devices.get(device)
            if record is None:
                raise Refused(f"no device {device!r} is known here", "NOT_FOUND")
            return {"device": device_document(record, now)}
        records = sorted(recorder.devices.values(), key=lambda each: each.identity.device)
        told = records[: min(most or MOST_TOLD, MOST_TOLD)]
        return {
            "totals": totals(recorder),
            "devices": [fleet_row(each, now) for each in told],
            "left_out": len(records) - len(told),
            "events": [event_document(each) for each in list(recorder.events)[-20:]],
        }


def _plain(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else round(value, 3)


def _short(value: float) -> float:
    return round(value, 2)
