"""The prototype's section of the report: what was run, latency over the rounds, tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.learning.policies import POLICIES
from cans.simulation.reproduce.claims.methods import DW, LINUCB
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES, title
from cans.simulation.reproduce.figures.plots import Figure, Line, Panel, line
from cans.simulation.reproduce.page.section import Section
from cans.simulation.reproduce.page.tables import Table
from cans.testbed.prototype.claims import share_below
from cans.testbed.prototype.measured import DEVICE_TITLES, Measured, Place
from cans.testbed.report.records import FIXED

PAPER = tuple(name for name in POLICIES if name != "cans")  # those the paper could compare


def section(prototype: Measured, ablation: Measured) -> Section:
    return Section(
        "The prototype, on real processes",
        [_what_was_run(prototype), _calibrated([prototype, ablation]), _who_is_lowest(prototype)],
        [
            latency_figure(prototype, "prototype-latency"),
            latency_figure(ablation, "prototype-ablation"),
        ],
        [
            latency_table(prototype, "Average latency (ms) of all rounds."),
            below_table(prototype),
            latency_table(ablation, "Ablation: average latency (ms) of all rounds."),
            calibration_table([prototype, ablation]),
        ],
    )


def latency_figure(found: Measured, name: str) -> Figure:
    """Average latency so far, as the paper draws it: a row per device, a column per backbone."""
    return Figure(
        name,
        [
            (
                DEVICE_TITLES.get(device, device),
                [_panel(found, Place(model, device)) for model in MODEL_TITLES],
            )
            for device in found.devices
        ],
    )


def _panel(found: Measured, place: Place) -> Panel:
    lines = [_line(found, place, policy) for policy in found.policies]
    return Panel(MODEL_TITLES[place.model], "inferences", "average latency (ms)", lines)


def _line(found: Measured, place: Place, policy: str) -> Line:
    latencies = found.of(place, policy)
    rounds = np.arange(1, len(latencies) + 1)
    so_far: Array = np.cumsum(latencies) / rounds
    look, label = ("oracle", _name(FIXED)) if policy == FIXED else (policy, "")
    return line(look, rounds, so_far[None, :], label=label)


# --- words ---


def _what_was_run(found: Measured) -> str:
    experiment = found.experiment
    devices = " and ".join(
        f"{DEVICE_TITLES.get(each.type, each.type)} ({each.slowdown:g} times slower than the "
        "server)"
        for each in experiment.devices
    )
    links = ", ".join(f"{each.mbps:g} Mbps" for each in experiment.links)
    return (
        f"Two devices, {devices}, on one link of {links} ({found.network}); models "
        f"{', '.join(experiment.models)}; features {experiment.features}; "
        f"{experiment.rounds} inferences per device and policy, where the paper has 300. Devices "
        "are processes of this machine that stretch their own time; policies take turns in every "
        "round. “Best fixed” is the choice that was best when all were tried beforehand."
    )


def _calibrated(all_found: Sequence[Measured]) -> str:
    each = [one for found in all_found for one in found.calibration]
    fine = sum(one.within for one in each)
    return f"{fine} of {len(each)} devices are within 15 % of the slow-down and rate asked for."


def _who_is_lowest(found: Measured) -> str:
    places = list(found.places())
    means = {
        place: {policy: float(found.of(place, policy).mean()) for policy in found.policies}
        for place in places
    }
    others = [policy for policy in found.policies if policy in PAPER]
    first = sum(min(others, key=lambda p: means[place][p]) == DW for place in places)
    text = (
        f"The paper finds {title(DW)} lowest on every model and device; of its own methods it is "
        f"lowest in {first} of {len(places)} here."
    )
    if "cans" in found.policies:
        below = sum(means[place]["cans"] < means[place][DW] for place in places)
        text += f" Policy “cans” is below {title(DW)} in {below} of {len(places)}."
    return text


# --- tables ---


def latency_table(found: Measured, caption: str) -> Table:
    places = list(found.places())
    rows = [
        [_name(policy), *(f"{found.of(place, policy).mean():.1f}" for place in places)]
        for policy in found.policies
    ]
    return Table(caption, ["policy", *(place.title for place in places)], rows)


def below_table(found: Measured) -> Table:
    places = list(found.places())
    rows = [
        [
            _name(policy),
            *(f"{share_below(found, place, policy, LINUCB).mean():.0%}" for place in places),
        ]
        for policy in found.policies
        if policy != LINUCB
    ]
    caption = f"Average latency below that of {title(LINUCB)}."
    return Table(caption, ["policy", *(place.title for place in places)], rows)


def calibration_table(all_found: Sequence[Measured]) -> Table:
    rows = []
    for found in all_found:
        per_model = len(found.calibration) // len(found.experiment.models)
        for number, each in enumerate(found.calibration):
            model = found.experiment.models[number // per_model]
            rows.append(
                [
                    f"{found.experiment.name}, {model}, {each.device}",
                    f"{each.asked_slowdown:.2f}", f"{each.achieved_slowdown:.2f}",
                    f"{each.asked_mbps:.1f}", f"{each.achieved_mbps:.1f}",
                ]
            )  # fmt: skip
    headings = ["device", "slow-down asked", "achieved", "Mbps asked", "achieved"]
    return Table("What the testbed was asked to be, and was.", headings, rows)


def _name(policy: str) -> str:
    return "Best fixed" if policy == FIXED else title(policy)
