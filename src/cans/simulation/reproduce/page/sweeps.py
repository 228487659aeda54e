"""Sections about a sweep: fleet size, gamma, the bounds, the case study."""

from __future__ import annotations

import numpy as np

from cans.learning.arithmetic.arrays import Array, IntArray
from cans.simulation.reproduce.claims.methods import DW, MODELS
from cans.simulation.reproduce.claims.sweeps import (
    CASE_SWEEPS,
    bound_shares,
    gamma_remark,
    regret_per_device,
    trend,
)
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES, title, values
from cans.simulation.reproduce.figures.plots import Figure, Line, Panel, line
from cans.simulation.reproduce.page.section import (
    SHOWN,
    WORLDS,
    Section,
    by_world_and_model,
    per_model,
    sweep_line,
)
from cans.simulation.reproduce.studies.experiments import study
from cans.simulation.reproduce.studies.outcomes import Results, bound_curves, worst_regret_ms


def fleet_size(results: Results) -> Section:
    sizes = results.sweep("fleet-size", "devices")

    def panel(world: str, model: str) -> Panel:
        found = []
        for policy in SHOWN:
            what = {"model": model, "world": world, "policy": policy}
            runs = [results.of(devices=size, **what) for size in sizes]
            found.append(sweep_line(policy, sizes, runs))
        return Panel(MODEL_TITLES[model], "devices N", "average latency (ms)", found, ticks=sizes)

    def rise(model: str) -> str:
        small, large = (
            values(results, "latency_ms", model=model, world="paper", policy=DW, devices=n).mean()
            for n in (min(sizes), max(sizes))
        )
        return f"{small:.1f} → {large:.1f} ms"

    return Section(
        "Number of devices",
        [
            f"The rounds are shared by more devices, so each has fewer to learn from. From N = "
            f"{min(sizes)} to {max(sizes)}, {title(DW)} goes {per_model(rise)}.",
        ],
        [by_world_and_model("fleet-size", panel)],
    )


def gamma(results: Results) -> Section:
    levels = results.sweep("gamma", "gamma")
    ticks = [100 * level for level in levels]

    def panel(world: str, model: str) -> Panel:
        found = []
        for mode, dash in (("device", "solid"), ("round", "dotted")):
            for policy in (DW, "oracle"):
                what = {"model": model, "world": world, "policy": policy, "gamma_mode": mode}
                runs = [results.of(gamma=level, **what) for level in levels]
                label = f"{title(policy)}, drawn per {mode}"
                found.append(sweep_line(policy, ticks, runs, label=label, dash=dash))
        return Panel(
            MODEL_TITLES[model],
            "γ (%)",
            "average latency (ms)",
            found,
            ticks=ticks,
            log_y=False,
        )

    return Section(
        "Heterogeneity within a group",
        [
            "The speed of a device is its type's times a factor from U(1 − γ, 1 + γ), drawn once "
            "per device or anew in every round; the paper's text allows both. "
            + gamma_remark(results, "paper"),
            "The axis starts at zero on purpose: a few per cent of latency are within the spread "
            "between seeds.",
        ],
        [by_world_and_model("gamma", panel)],
    )


def bounds(results: Results) -> Section:
    def figure(name: str, curve: str, label: str, scale: float) -> Figure:
        def panel(world: str, model: str) -> Panel:
            what = study(model=model, world=world, policy=DW)
            found = []
            for beta, dash in ((50.0, ""), ("theory", "dashdot")):
                outcome = results.of(model=model, world=world, policy=DW, beta_ms=beta)
                words = "radius 50 ms" if beta == 50.0 else "radius “theory”"
                samples = outcome.curves[curve] / scale
                found.append(line(DW, outcome.checkpoints, samples, label=words, dash=dash))
            at = np.unique(np.geomspace(1, what.settings.rounds, 24).astype(np.int64))
            bound = bound_curves(what, 0, at)[0 if curve == "regret" else 1] / scale
            found.append(_plain("bound", at, bound, "the supplement's bound"))
            if curve == "regret":
                worst = at.astype(np.float64) * (worst_regret_ms(what, 1) / scale)
                found.append(_plain("worst", at, worst, "slowest point every round"))
            return Panel(MODEL_TITLES[model], "rounds", label, found, log_x=True)

        return by_world_and_model(name, panel)

    shares = {m: bound_shares(results, "paper", m, "theory") for m in MODELS}
    what = study(model="vgg16", world="paper", policy=DW)
    rounds = what.settings.rounds
    bound = bound_curves(what, 0, np.array([rounds]))[0][0]
    vacuous = bound / worst_regret_ms(what, rounds)
    return Section(
        "Regret and uploads against the supplement's bounds",
        [
            "With the radius of the confidence lemma, regret reaches at most "
            + per_model(lambda m: f"{shares[m][0].max():.1%}")
            + " of its bound, and uploads "
            + per_model(lambda m: f"{shares[m][1].max():.0%}")
            + ".",
            "Holding is not much of a test: on VGG-16 the regret bound is "
            f"{vacuous:.1f} times what the slowest point in every round would cost. "
            "The constant radius of the other figures "
            "is smaller than the lemma's, so the theorem does not cover it; it stays below too.",
        ],
        [
            figure("bound-regret", "regret", "cumulative regret (s)", 1e3),
            figure("bound-uploads", "uploads", "uploads", 1.0),
        ],
    )


def _plain(look: str, x: IntArray, y: Array, label: str) -> Line:
    return Line(look, x.astype(np.float64), y, y, y, label)


def case_study(results: Results) -> Section:
    names = {"devices": "devices M", "types": "types K", "offline_runs": "1 + offline runs"}

    def panel(world: str, swept: str) -> Panel:
        found = []
        for model in MODELS:
            steps, rows = regret_per_device(results, world, model, swept)
            x = [step + (min(steps) == 0) for step in steps]
            found.append(line(model, x, rows.T, marked=True))
        return Panel(
            names[swept], names[swept], "regret per device (ms)", found, log_x=True, ticks=x
        )

    def change(swept: str) -> str:
        return per_model(
            lambda m: f"{2 ** trend(*regret_per_device(results, 'paper', m, swept)).mean - 1:+.1%}"
        )

    return Section(
        "Case study: more devices, fewer types, more experience",
        [
            "Every device takes part in 100 rounds, and all types have equally many devices. For "
            f"each doubling, regret per device changes: with devices {change('devices')}; with "
            f"types {change('types')}; with (1 +) offline runs {change('offline_runs')}.",
            "More types than three are labels on the same hardware: only what is pooled changes.",
        ],
        [
            Figure(
                "case-study",
                [
                    (heading, [panel(world, swept) for swept in CASE_SWEEPS])
                    for world, heading in WORLDS.items()
                ],
            )
        ],
    )
