"""The section of the report, and the same numbers as a document."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.learning.policies import ABLATIONS, CLUSTERED, POLICIES
from cans.simulation.reproduce.beyond.ingredients import WORTH, worth
from cans.simulation.reproduce.beyond.scenes import CANS, DW, LINUCB, Scene, scenes
from cans.simulation.reproduce.beyond.studies import AFTER, BEFORE, BLOCK, Beyond, marks
from cans.simulation.reproduce.claims.bar import Bar
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES, title
from cans.simulation.reproduce.figures.plots import Figure, Line, Panel, line
from cans.simulation.reproduce.page.section import Section
from cans.simulation.reproduce.page.tables import Table

HINDSIGHT = "FedLinUCB-DW, best β"
STALE = "cans-stale-pools"
DRAWN = (CANS, DW, LINUCB, "fedlinucb", "local")


def beyond_the_paper(beyond: Beyond, bars: Sequence[Bar]) -> Section:
    held = sum(bar.verdict == "held" for bar in bars)
    others = [
        f"; {verdict}: {', '.join(found)}"
        for verdict in ("missed", "undecided")
        if (found := [bar.id for bar in bars if bar.verdict == verdict])
    ]
    return Section(
        "Beyond the paper",
        [
            f"Policy “cans” against the others, with one setting for all worlds. Of {len(bars)} "
            f"bars {held} are held{''.join(others)}.",
            "The oracle's regret is zero by definition and is not drawn. “Best β” is FedLinUCB-DW "
            "with the radius, out of a few, that turned out best in this world and on this model: "
            "no user has that.",
            _worthless(beyond),
        ],
        [figure for figure in (regrets(beyond), recovery(beyond), ages(beyond)) if figure.rows],
        [
            *(regret_table(beyond, model) for model in beyond.values("model")),
            ablation_table(beyond),
            age_table(beyond),
        ],
        bars,
    )


def beyond_document(beyond: Beyond, bars: Sequence[Bar]) -> dict[str, Any]:
    """beyond.json: the bars, and the mean of every setting that was run."""
    settings = [
        {
            "world": each.settings.world,
            "model": each.settings.model,
            "policy": each.settings.policy,
            "devices": each.settings.devices,
            "beta_ms": each.settings.hyperparameters.beta_ms,
            "pool_age": each.settings.pool_age,
            "seeds": trial.seeds,
            "regret_ms": round(float(trial.regret_ms.mean()), 3),
            "optimum_ms": round(float(trial.optimum_ms.mean()), 3),
            "bytes": round(float(trial.bytes.mean())),
        }
        for each, trial in beyond.trials.items()
    ]
    ablation = {
        ablated: {
            world: {"saves": found.saved.to_dict(), "regret_ratio": found.ratio}
            for world in beyond.values("world")
            if (found := worth(beyond, ablated, world)) is not None
        }
        for ablated in ABLATIONS
    }
    return {"bars": [bar.to_dict() for bar in bars], "ablation": ablation, "settings": settings}


def _worthless(beyond: Beyond) -> str:
    """Names every ingredient that helps in no world, and every one that harms in some world."""
    useless, costly = [], []
    for ablated in ABLATIONS:
        found = {world: worth(beyond, ablated, world) for world in beyond.values("world")}
        known = {world: each for world, each in found.items() if each is not None}
        if known and not any(each.helps for each in known.values()):
            useless.append(ablated)
        harmed = [world for world, each in known.items() if each.harms]
        if harmed:
            costly.append(f"{ablated} ({', '.join(harmed)})")
    text = (
        "Turning off what helps in no world costs nothing: " + ", ".join(useless) + "."
        if useless
        else "Every ingredient helps in some world."
    )
    return f"{text} Better without it, somewhere: {', '.join(costly) or 'none'}."


# --- figures ---


def regrets(beyond: Beyond) -> Figure:
    """Regret of policies in all worlds, on logarithmic axes."""
    rows = []
    for world in beyond.values("world"):
        panels = [_regret_panel(beyond, at) for at in scenes(beyond, (world,), CANS, DW)]
        if panels:
            rows.append((f"World “{world}”", panels))
    return Figure("beyond-regret", rows)


def _regret_panel(beyond: Beyond, at: Scene) -> Panel:
    lines = [
        line(policy, _marks(beyond), at.of(beyond, policy).curve / 1e3)
        for policy in DRAWN
        if beyond.has(policy=policy, world=at.world, model=at.model)
    ]
    best = at.of(beyond, DW, beta_ms=beyond.best_beta(at.world, at.model)).curve / 1e3
    lines.append(line(DW, _marks(beyond), best, label=HINDSIGHT, dash="dotted"))
    name = MODEL_TITLES[at.model]
    return Panel(name, "rounds", "cumulative regret (s)", lines, log_x=True)


def _marks(beyond: Beyond) -> Any:
    (rounds,) = beyond.values("rounds")
    return marks(rounds)


def recovery(beyond: Beyond) -> Figure:
    """Expected latency before and after the link changes."""
    x: Array = np.arange(-BEFORE, AFTER, BLOCK, dtype=np.float64) + BLOCK / 2
    rows = []
    for step, name in enumerate(("The link falls from 50 to 2 Mbps", "The link is back")):
        panels = []
        for at in scenes(beyond, ("drifting",), CANS, DW):
            ours = at.of(beyond, CANS)
            lines = [
                line(policy, x, at.of(beyond, policy).around[:, step]) for policy in (CANS, DW)
            ]
            optimum = ours.optimum_around[:, step]
            lines.append(line("oracle", x, optimum))
            title_ = MODEL_TITLES[at.model]
            panels.append(Panel(title_, "rounds after the change", "expected latency (ms)", lines))
        if panels:
            rows.append((f"World “drifting”: {name}", panels))
    return Figure("beyond-recovery", rows)


def ages(beyond: Beyond) -> Figure:
    """Regret against the age of the pools at the choice."""
    rows = []
    for world in beyond.values("world"):
        panels = []
        for at in scenes(beyond, (world,), CANS, DW):
            known = _ages(beyond, at)
            if len(known) > 1:
                panels.append(_age_panel(beyond, at, known))
        if panels:
            rows.append((f"World “{world}”", panels))
    return Figure("beyond-pool-age", rows)


def _ages(beyond: Beyond, at: Scene) -> list[float]:
    return [
        age
        for age in sorted(beyond.values("pool_age"))
        if beyond.has(world=at.world, model=at.model, policy=CANS, pool_age=age)
    ]


def _age_panel(beyond: Beyond, at: Scene, known: Sequence[float]) -> Panel:
    trials = [at.of(beyond, CANS, pool_age=age) for age in known]
    seeds = min(trial.seeds for trial in trials)
    samples = np.array([trial.regret_ms[:seeds] for trial in trials]).T / 1e3
    lines: list[Line] = [line(CANS, known, samples, marked=True)]
    level = at.of(beyond, DW).regret_ms[:, None] / 1e3
    lines.append(line(DW, known, np.repeat(level, len(known), axis=1)))
    if beyond.has(world=at.world, model=at.model, policy=STALE):
        level = at.of(beyond, STALE).regret_ms[:, None] / 1e3
        stale = np.repeat(level, len(known), axis=1)
        lines.append(line(CANS, known, stale, label="CANS, one own round old", dash="dotted"))
    name = MODEL_TITLES[at.model]
    return Panel(name, "age of the pools (rounds)", "regret (s)", lines, ticks=known)


# --- tables ---


def regret_table(beyond: Beyond, model: str) -> Table:
    """Final regret of every policy in every world."""
    worlds = beyond.values("world")
    rows = []
    for policy in (*POLICIES, *CLUSTERED):
        found = [
            _seconds(beyond.of(policy=policy, world=world, model=model).regret_ms)
            if beyond.has(policy=policy, world=world, model=model)
            else "–"
            for world in worlds
        ]
        if set(found) != {"–"}:
            rows.append([title(policy), *found])
    best = []
    for world in worlds:
        if not beyond.has(policy=DW, world=world, model=model):
            best.append("–")
            continue
        beta = beyond.best_beta(world, model)
        trial = beyond.of(policy=DW, world=world, model=model, beta_ms=beta)
        best.append(f"{_seconds(trial.regret_ms)} (β {beta:g})")
    rows.append([HINDSIGHT, *best])
    caption = f"{MODEL_TITLES[model]}, N = 25: regret in seconds, mean ± standard deviation."
    return Table(caption, ["", *worlds], rows)


def _seconds(regret_ms: Any) -> str:
    spread = float(np.std(regret_ms, ddof=1)) if len(regret_ms) > 1 else 0.0
    mean = float(np.mean(regret_ms)) / 1e3
    digits = 0 if mean >= 100 else 1 if mean >= 10 else 3
    return f"{mean:,.{digits}f} ± {spread / 1e3:,.{digits}f}"


def ablation_table(beyond: Beyond) -> Table:
    """Regret without an ingredient over regret with it, and the difference in latency."""
    worlds = [
        world
        for world in beyond.values("world")
        if any(worth(beyond, ablated, world) for ablated in ABLATIONS)
    ]
    rows, heat = [], []
    for ablated in ABLATIONS:
        row, shades = [ablated], []
        for world in worlds:
            found = worth(beyond, ablated, world)
            if found is None:
                row.append("–")
                shades.append(0.0)
                continue
            mean = found.saved.mean
            ratio = found.ratio if isinstance(found.ratio, str) else f"{found.ratio:,.2f}"
            row.append(f"× {ratio} ({mean:+.2%})".replace("-", "−"))
            size = min(log10(max(abs(mean) / WORTH, 1.0)) / 3, 1.0)
            shades.append(size if found.helps else -size if found.harms else 0.0)
        rows.append(row)
        heat.append(shades)
    caption = (
        "One ingredient turned off, all models together: regret over that of CANS, and by how much "
        "latency rises, as a share of the oracle's. Orange: the ingredient helps; green: CANS is "
        "better without it; white: no clear difference."
    )
    return Table(caption, ["", *worlds], rows, heat)


def age_table(beyond: Beyond) -> Table:
    """Bytes that learning exchanges, against the age of the pools."""
    headings: list[str] = ["bytes per round"]
    rows = []
    known = sorted(beyond.values("pool_age"))
    headings += [f"age {age:g}" for age in known] + ["one own round", title(DW)]
    for at in scenes(beyond, beyond.values("world"), CANS, DW):
        if len(_ages(beyond, at)) < 2:
            continue
        what: dict[str, Any] = {"world": at.world, "model": at.model}
        asked = [{"policy": CANS, "pool_age": age} for age in known]
        asked += [{"policy": STALE}, {"policy": DW}]
        (rounds,) = beyond.values("rounds")
        rows.append(
            [
                at.title,
                *(
                    f"{beyond.of(**what, **each).bytes.mean() / rounds:,.0f}"
                    if beyond.has(**what, **each)
                    else "–"
                    for each in asked
                ),
            ]
        )
    caption = "Uploads and downloads of statistics, per round of the fleet; N = 25."
    return Table(caption, headings, rows)
