"""A fleet and a device in a terminal. Text from devices is never read as markup."""

from __future__ import annotations

from time import localtime, strftime
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

_COLOURS = {"offloading": "blue", "local": "green", "breaker": "yellow", "gone": "red"}
_STATES = {"breaker": "breaker open"}


def wide_console() -> Console:
    """The terminal as it is; where there is none, lines are not folded at eighty characters."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def fleet_table(document: dict[str, Any]) -> Group:
    """What `cans status` shows."""
    totals = document["totals"]
    head = Text(
        f"{_many(totals['devices'], 'device')}, {totals['per_second']:g} inferences/s, "
        f"mean latency {_ms(totals['latency_ms'])}; "
        f"saved {_seconds(totals['saved_local_s'])} against always local, "
        f"{_seconds(totals['saved_offload_s'])} against always offload"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("device", "type", "network", "server", "model", "state", "cut"):
        table.add_column(name, overflow="fold")
    for name in ("latency", "local", "offload", "inferences"):
        table.add_column(name, justify="right")
    for row in document["devices"]:
        state = row["state"]
        table.add_row(
            *(Text(row[name]) for name in ("device", "type", "network", "server", "model")),
            Text(_STATES.get(state, state), style=_COLOURS.get(state, "")),
            Text(_cut(row["choice"])), _ms(row["latency_ms"]), _ms(row["local_ms"]),
            _ms(row["offload_ms"]), str(row["inferences"]),
        )  # fmt: skip
    more = [Text(f"and {document['left_out']} more")] if document["left_out"] else []
    return Group(head, Text(""), table, *more)


def device_page(device: dict[str, Any]) -> Group:
    """What `cans explain` shows."""
    state = device["state"]
    lines = [
        Text(
            f"{device['device']}: {device['type']} on {device['network']}, {device['model']} "
            f"with {device['server']}"
        ),
        Text(f"{_STATES.get(state, state)}, {_cut(device['choice'])}; {_ms(device['latency_ms'])}"),
        Text(f"why: {device['why'] or 'not told yet'}"),
        Text(
            f"{_many(device['inferences'], 'inference')}, "
            f"{_many(device['fallbacks'], 'fallback')}, "
            f"{_many(device['uploads'], 'upload')}, {device['refused']} refused"
        ),
        Text(""),
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "point", "codec"):
        table.add_column(name, overflow="fold")
    for name in ("expected", "width", "bytes"):
        table.add_column(name, justify="right")
    now = None if device["choice"] is None else device["choice"]["row"]
    known = [each for each in device["choices"] if each["predicted_ms"] is not None]
    for each in sorted(known, key=lambda each: each["predicted_ms"]):
        table.add_row(
            "*" if each["row"] == now else "", Text(f"{each['point']} {each['point_name']}"),
            each["codec"] or "local", _ms(each["predicted_ms"]), _ms(each["width_ms"]),
            str(each["bytes"] or ""),
        )  # fmt: skip
    history = [
        Text(f"{strftime('%H:%M:%S', localtime(each['time']))}  {_cut(each)}")
        for each in device["changes"][-10:]
    ]
    return Group(*lines, table, Text(""), Text("last choices", style="bold"), *history)


def _cut(choice: dict[str, Any] | None) -> str:
    if choice is None:
        return "–"
    return f"{choice['point_name']}, {choice['codec']}" if choice["codec"] else "all on the device"


def _many(count: int, word: str) -> str:
    """
    >>> _many(1, "device"), _many(0, "device")
    ('1 device', '0 devices')
    """
    return f"{count} {word}{'' if count == 1 else 's'}"


def _seconds(value: float) -> str:
    """
    >>> _seconds(-0.04), _seconds(-1.25)
    ('0.0 s', '-1.2 s')
    """
    return f"{round(value, 1) + 0.0:.1f} s"  # + 0.0: no minus before nothing


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} ms"
