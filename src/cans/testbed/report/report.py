"""What a run leaves: one tidy file of inferences, a trace, a report, figures, tables to read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cans.errors import InputError
from cans.testbed.report.figures import draw_latency
from cans.testbed.report.records import write_rows, write_trace
from cans.testbed.report.summary import summarise
from cans.testbed.run.experiment import Experiment
from cans.testbed.run.experiment_run import Outcome


def open_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}") from None


def write_report(
    experiment: Experiment, network: str, outcomes: Sequence[Outcome], out: Path
) -> dict[str, Any]:
    """All files; returns the report."""
    open_folder(out)
    write_rows(out / "inferences.jsonl", (row for each in outcomes for row in each.rows))
    document = {
        "experiment": asdict(experiment),
        "network": network,
        "models": [summarise(experiment, each) for each in outcomes],
    }
    for each in outcomes:
        name = Path(each.model).stem
        write_trace(out / f"trace-{name}.csv", each.rows, each.choices)
        draw_latency(each.rows, f"{experiment.name}: {name}", out / f"latency-{name}.svg")
    (out / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return document


def print_report(document: dict[str, Any]) -> None:
    """Tables for a person, on standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)  # a file has room; no policy's name is cut
    for model in document["models"]:
        console.print(
            f"\n{document['experiment']['name']}, {model['model']}: {document['network']}"
        )
        table = Table("device", "slow-down asked", "achieved", "Mbps asked", "achieved", "15 %")
        for each in model["calibration"]:
            table.add_row(
                each["device"], f"{each['asked_slowdown']:.2f}",
                f"{each['achieved_slowdown']:.2f}", f"{each['asked_mbps']:.1f}",
                f"{each['achieved_mbps']:.1f}", "ok" if each["within_15_percent"] else "NO",
            )  # fmt: skip
        console.print(table)
        _print_policies(console, model)
        _print_excess(console, model)
        _print_contention(console, model)
        for phase, policies in model.get("after_change", {}).items():
            table = Table("policy", f"back after (links change in round {phase})", "first 50",
                          "after 50")  # fmt: skip
            for label, found in policies.items():
                back = found["back_within_10_percent_after"]
                table.add_row(label, "never" if back is None else str(back),
                              _ratio(found["first_50_over_best_fixed"]),
                              _ratio(found["after_50_over_best_fixed"]))  # fmt: skip
            console.print(table)
        if "outage" in model:
            table = Table("policy", "asked in the outage", "answered", "slowest / local")
            for label, found in model["outage"].items():
                table.add_row(label, str(found["inferences"]), str(found["answered"]),
                              _ratio(found["slowest_over_local"]))  # fmt: skip
            console.print(table)


def _print_policies(console: Any, model: dict[str, Any]) -> None:
    from rich.table import Table

    firsts = list(next(iter(model["policies"].values()))["first"])
    table = Table("policy", *(f"first {n}, ms" for n in firsts), "all, ms",
                  *(f"gap closed {n}" for n in firsts), "below linucb", "energy, mJ")  # fmt: skip
    for label, found in model["policies"].items():
        gaps = model["gap_closed"].get(label, {})
        shares = [gaps[n]["gap_closed"] if n in gaps else None for n in firsts]
        below = gaps[firsts[-1]]["percent_below_linucb"] if gaps else None
        table.add_row(
            label, *(_ms(found["first"][n]) for n in firsts), _ms(found["mean_ms"]),
            *("-" if share is None else f"{100 * share:.0f} %" for share in shares),
            "-" if below is None else f"{below:.1f} %", _ms(found["energy_mj"]),
        )  # fmt: skip
    console.print(table)


def _print_contention(console: Any, model: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("policy", "early / linucb", "later / joint", "wait, ms", "stayed local",
                  "device was first", "refused", "not answered")  # fmt: skip
    for label, found in model.get("contention", {}).items():
        table.add_row(
            label, _ratio(found["early_over_linucb"]), _ratio(found["later_over_joint"]),
            _ms(found["mean_wait_ms"]), f"{found['stayed_local']:.0%}",
            *(str(found[each]) for each in ("device_was_first", "refused", "not_answered")),
        )  # fmt: skip
    if table.rows:
        console.print(table)


def _print_excess(console: Any, model: dict[str, Any]) -> None:
    """Where every policy loses against the best fixed choice."""
    from rich.table import Table

    table = Table("policy", "rounds", "over best fixed, ms", "by other choices",
                  "by the same, slower", "other choices")  # fmt: skip
    for label, windows in model.get("excess", {}).items():
        for each in windows:
            table.add_row(
                label, f"{each['from_round']} to {each['to_round']}", f"{each['excess_ms']:.2f}",
                f"{each['other_choice_ms']:.2f}", f"{each['same_choice_ms']:.2f}",
                f"{each['other_choices']:.0%}",
            )  # fmt: skip
    if table.rows:
        console.print(table)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
