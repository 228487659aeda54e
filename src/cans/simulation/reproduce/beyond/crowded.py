"""Everyone at once: the report's section on world `crowded`, and who cuts where as load rises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.simulation.crowd import CrowdRun, CrowdSettings, mean_ms, play_seed
from cans.simulation.reproduce.claims.verdicts import title
from cans.simulation.reproduce.figures.plots import Figure, Panel, line
from cans.simulation.reproduce.page.section import Section
from cans.simulation.reproduce.page.tables import Table
from cans.simulation.worlds.layered import TIERS
from cans.simulation.worlds.world import World

FIRST_SEED = 440_000  # how devices behave in a crowd was chosen on seeds below 90,000
SHOWN = ("cans", "fedlinucb-dw", "linucb", "local", "offload")
LOADS, QUICK_LOADS = (0.3, 0.6, 0.9, 1.5, 2.0), (0.3, 0.9)
SEEDS, QUICK_SEEDS = 5, 2
DEVICES, EACH = 25, 40  # and inferences of each
PLACES = {"offload": "raw input sent", "cans": "cut inside the model", "local": "stays local"}
"""Where inferences are cut, drawn in the colours of the policies that always do so."""


@dataclass(frozen=True, eq=False)
class Crowded:
    """One policy at one load; axis 0 is the seed."""

    over_best: Array  # (seeds,) mean latency over that of the best joint assignment
    shares: Array  # (seeds, types, places) of the second half of a type's inferences


Crowds = Mapping[tuple[float, str], Crowded]
"""By load and policy."""


def crowd_runs(quick: bool) -> dict[CrowdSettings, int]:
    """Every setting and its number of seeds."""
    loads, seeds = (QUICK_LOADS, QUICK_SEEDS) if quick else (LOADS, SEEDS)
    rounds = DEVICES * EACH
    return {
        CrowdSettings(policy=policy, devices=DEVICES, rounds=rounds, load=load): seeds
        for load in loads
        for policy in SHOWN
    }


def run_crowds(wanted: Mapping[CrowdSettings, int], progress: Callable[[int], None]) -> Crowds:
    """Play every setting, each over its seeds."""
    found = {}
    for what, seeds in wanted.items():
        found[what.load, what.policy_name] = play_crowd(what, seeds)
        progress(seeds)
    return found


def play_crowd(what: CrowdSettings, seeds: int) -> Crowded:
    """One setting over its seeds."""
    world = what.make_world()
    runs = [play_seed(what, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
    return Crowded(
        np.array([mean_ms(run.record) / mean_ms(run.best) for run in runs]),
        np.array([_shares(run, world) for run in runs]),
    )


def _shares(run: CrowdRun, world: World) -> Array:
    half = len(run.points) // 2
    points, types = run.points[half:], world.type_of[run.record.active[half:]]
    local = world.table.point_of[world.table.local]
    places = np.array([points == 0, (points > 0) & (points < local), points == local])
    return np.array([places[:, types == each].mean(axis=1) for each in range(len(world.types))])


def everyone_at_once(crowds: Crowds) -> Section:
    """The section of the report."""
    seeds = len(next(iter(crowds.values())).over_best)
    return Section(
        "Everyone at once",
        [
            f"{DEVICES} devices of the paper's three types want one small edge box with one worker "
            f"(VGG-16, 100 Mbps, {EACH} inferences each from a cold start, {seeds} seeds). A load "
            "of 1 is what the box can just do if everybody chooses as if alone. The best joint "
            "assignment is a planner's that knows every parameter; a policy that follows the "
            "moment may do better.",
        ],
        [latencies(crowds), who_cuts_where(crowds)],
        [latency_table(crowds)],
    )


def loads_of(crowds: Crowds) -> list[float]:
    return sorted({load for load, _ in crowds})


def latencies(crowds: Crowds) -> Figure:
    """Mean latency against load, of every policy."""
    loads = loads_of(crowds)
    lines = [
        line(policy, loads, np.array([crowds[load, policy].over_best for load in loads]).T,
             marked=True)
        for policy in SHOWN
    ]  # fmt: skip
    panel = Panel("VGG-16", "load", "mean latency / best assignment", lines, ticks=loads)
    return Figure("crowded-latency", [("World “crowded”", [panel])])


def who_cuts_where(crowds: Crowds) -> Figure:
    """Where devices of each type cut as load rises, under `cans`."""
    loads = loads_of(crowds)
    shares = np.array([crowds[load, "cans"].shares for load in loads])  # load, seed, type, place
    panels = []
    for kind, name in enumerate(TIERS):
        lines = [
            line(look, loads, shares[:, :, kind, place].T, label=label, marked=True)
            for place, (look, label) in enumerate(PLACES.items())
        ]
        panels.append(Panel(name, "load", "share of inferences", lines, log_y=False, ticks=loads))
    return Figure("crowded-cuts", [("Who cuts where as load rises (CANS, second half)", panels)])


def latency_table(crowds: Crowds) -> Table:
    loads = loads_of(crowds)
    rows = [
        [title(policy), *(f"{crowds[load, policy].over_best.mean():.2f}" for load in loads)]
        for policy in SHOWN
    ]
    caption = "World “crowded”: mean latency over that of the best joint assignment"
    return Table(caption, ["load", *(f"{load:g}" for load in loads)], rows)
