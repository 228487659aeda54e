"""What policy `cans` must hold, each bar a list of checks that the numbers alone decide.

Differences are paired by seed: both policies met the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cans.learning.policies import CLUSTERED
from cans.simulation.reproduce.beyond.ingredients import every_ingredient_helps
from cans.simulation.reproduce.beyond.scenes import (
    CANS,
    DW,
    LINUCB,
    Scene,
    at_most,
    common,
    scenes,
    seconds,
    share,
)
from cans.simulation.reproduce.beyond.studies import Beyond, radii_of
from cans.simulation.reproduce.claims.bar import Bar
from cans.simulation.reproduce.claims.intervals import mean_interval, paired
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES, Check, holds, title
from cans.simulation.worlds.bent import BENT

PAPERS_BETA = 50.0
HOME = ("paper", "layered")
LEAST_SHARE = 1 / 20  # of fedlinucb-dw's regret
NEAR_ORACLE = 0.01
SAME_REGRET, SAME_LATENCY = (
    0.05,
    0.01,
)  # "not worse": of the rival's regret, of the oracle's latency
RECOVERED, LOCKED_IN = 0.05, 0.01
GROUPING = 1 / 2  # of plain grouping's regret
LIE = 0.05
NO_LABELS = ("unlabelled", "mislabelled")
WITHOUT_LABELS, LOST_WITHOUT_LABELS = 0.005, 0.002  # of the oracle's latency
LEAST_SHARE_OF_CLUSTERED = 1 / 5  # of the clustered bandits' regret, over all together
DECISIVE_SEEDS = 10  # with fewer an interval that contains the bar decides nothing


# --- worlds `paper` and `layered` ---


def far_less_regret(beyond: Beyond) -> list[Check]:
    return [
        at_most(
            at,
            at.of(beyond, CANS).regret_ms,
            at.of(beyond, DW).regret_ms,
            LEAST_SHARE,
            title(DW),
        )
        for at in scenes(beyond, HOME, CANS, DW)
    ]


def best_in_hindsight(beyond: Beyond) -> list[Check]:
    checks = []
    for at in scenes(beyond, HOME, CANS, DW):
        beta = beyond.best_beta(at.world, at.model)
        rival = at.of(beyond, DW, beta_ms=beta).regret_ms
        ours = at.of(beyond, CANS).regret_ms
        name = f"{title(DW)} with β = {beta:g} ms"
        checks.append(at_most(at, ours, rival, 1.0, name, strictly=False))
    return checks


def near_oracle(beyond: Beyond) -> list[Check]:
    checks = []
    for at in scenes(beyond, HOME, CANS):
        trial = at.of(beyond, CANS)
        above = mean_interval(trial.settled_ms / trial.settled_optimum_ms - 1)
        text = f"{at.title}: latency after 100 rounds within {NEAR_ORACLE:.0%} of the oracle"
        checks.append(
            holds(text, above.high <= NEAR_ORACLE, above.low <= NEAR_ORACLE, above_oracle=above)
        )
    return checks


def stale_pools(beyond: Beyond) -> list[Check]:
    stale = "cans-stale-pools"
    return [
        at_most(at, at.of(beyond, stale).regret_ms, at.of(beyond, DW).regret_ms, 1.0, title(DW))
        for at in scenes(beyond, HOME, stale, DW)
    ]


# --- every world ---


def not_worse(beyond: Beyond) -> list[Check]:
    return [
        _not_worse(beyond, at, rival, devices)
        for devices in sorted(beyond.values("devices"))
        for rival in (DW, LINUCB)
        for at in scenes(beyond, beyond.values("world"), CANS, rival, devices=devices)
    ]


def _not_worse(beyond: Beyond, at: Scene, rival: str, devices: int) -> Check:
    trial = at.of(beyond, CANS, devices=devices)
    beta = PAPERS_BETA
    if at.world in BENT:  # against the best of the radii that were run there
        beta = beyond.best_beta(at.world, at.model, rival, devices=devices)
    theirs = at.of(beyond, rival, devices=devices, beta_ms=beta).regret_ms
    difference = paired(*common(seconds(trial.regret_ms), seconds(theirs)))
    own = mean_interval(seconds(trial.regret_ms))
    behind = min(difference.high, own.high)  # no rival is ahead of the oracle
    allowed = 1e-3 * max(SAME_REGRET * theirs.mean(), SAME_LATENCY * trial.optimum_ms.mean())
    return holds(
        f"{at.title}, N = {devices}: not worse than {title(rival)}, β = {beta:g} ms",
        behind < allowed,
        difference.low < allowed,
        difference_s=difference,
        behind_at_most_s=round(float(behind), 6),
        allowed_s=round(float(allowed), 6),
        seeds=trial.seeds,
    )


def drifting_recovery(beyond: Beyond) -> list[Check]:
    checks = []
    for at in scenes(beyond, ("drifting",), CANS):
        for step, name in enumerate(("falls", "returns")):
            above = mean_interval(at.of(beyond, CANS).recovery[:, step])
            text = f"{at.title}: within {RECOVERED:.0%} of the optimum 50 to 150 rounds after the "
            held, open_ = above.high <= RECOVERED, above.low <= RECOVERED
            checks.append(holds(f"{text}link {name}", held, open_, above_optimum=above))
    return checks


def no_lock_in(beyond: Beyond) -> list[Check]:
    checks = []
    for at in scenes(beyond, ("drifting",), CANS):
        wrong = mean_interval(at.of(beyond, CANS).wrongly_local)
        text = f"{at.title}: wrongly local in under {LOCKED_IN:.0%} of the last 500 rounds"
        checks.append(holds(text, wrong.high < LOCKED_IN, wrong.low < LOCKED_IN, share=wrong))
    return checks


def plain_grouping(beyond: Beyond) -> list[Check]:
    """All models together decide; each alone is shown beside it.

    Where every device of a group has the same best point there is nothing for an offset to gain.
    """
    plain = "cans-no-offset"
    found = list(scenes(beyond, ("heterogeneous",), CANS, plain))
    if not found:
        return []
    pairs = [
        common(seconds(at.of(beyond, CANS).regret_ms), seconds(at.of(beyond, plain).regret_ms))
        for at in found
    ]
    ours, theirs = (np.sum(each, axis=0) for each in zip(*pairs, strict=True))
    excess = paired(ours, GROUPING * theirs)
    return [
        holds(
            f"heterogeneous, all models: regret ≤ {GROUPING:.3g} × plain grouping",
            excess.high <= 0,
            excess.low <= 0,
            cans_s=mean_interval(ours),
            rival_s=mean_interval(theirs),
            difference_s=excess,
            ratio=share(ours, theirs),
            **{f"ratio_{at.model}": share(*pair) for at, pair in zip(found, pairs, strict=True)},
        )
    ]


def one_liar(beyond: Beyond) -> list[Check]:
    checks = []
    for at in scenes(beyond, ("adversary",), CANS):
        if beyond.has(world="layered", model=at.model, policy=CANS):
            among = at.of(beyond, CANS).honest_ms
            without = Scene("layered", at.model).of(beyond, CANS).honest_ms
            loss = mean_interval(among / without - 1)
            text = f"{MODEL_TITLES[at.model]}: honest devices lose under {LIE:.0%} to one liar"
            checks.append(holds(text, loss.high < LIE, loss.low < LIE, loss=loss))
    return checks


# --- labels that nobody gave, or gave wrongly ---


def without_labels(beyond: Beyond) -> list[Check]:
    checks = []
    for at in scenes(beyond, NO_LABELS, CANS):
        trial = at.of(beyond, CANS)
        above = mean_interval(trial.regret_ms / trial.optimum_ms)
        text = f"{at.title}: latency within {WITHOUT_LABELS:.1%} of the oracle"
        held, open_ = above.high <= WITHOUT_LABELS, above.low <= WITHOUT_LABELS
        checks.append(holds(text, held, open_, above_oracle=above))
        if beyond.has(world="layered", model=at.model, policy=CANS):
            labelled = Scene("layered", at.model).of(beyond, CANS)
            ours, theirs = common(trial.regret_ms, labelled.regret_ms)
            lost = paired(ours / trial.optimum_ms.mean(), theirs / labelled.optimum_ms.mean())
            text = f"{at.title}: at most {LOST_WITHOUT_LABELS:.1%} more than with true labels"
            held, open_ = lost.high <= LOST_WITHOUT_LABELS, lost.low <= LOST_WITHOUT_LABELS
            checks.append(holds(text, held, open_, lost=lost))
    return checks


def clustered_rivals(beyond: Beyond) -> list[Check]:
    """Each rival at the radius that is best for it there."""
    checks, totals = [], []
    for rival in CLUSTERED:
        for at in scenes(beyond, NO_LABELS, CANS):
            radii = [
                beta
                for beta in radii_of(beyond)
                if beyond.has(world=at.world, model=at.model, policy=rival, beta_ms=beta)
            ]
            if not radii:
                continue
            beta = min(radii, key=lambda each: _mean(beyond, at, rival, each))
            ours = at.of(beyond, CANS).regret_ms
            theirs = at.of(beyond, rival, beta_ms=beta).regret_ms
            checks.append(at_most(at, ours, theirs, 1.0, f"{title(rival)}, β = {beta:g} ms"))
            totals.append(common(seconds(ours), seconds(theirs)))
    if totals:
        seeds = min(len(ours) for ours, _ in totals)
        ours = np.sum([each[:seeds] for each, _ in totals], axis=0)
        theirs = np.sum([each[:seeds] for _, each in totals], axis=0)
        excess = paired(ours, LEAST_SHARE_OF_CLUSTERED * theirs)
        text = f"all together: regret ≤ {LEAST_SHARE_OF_CLUSTERED:.3g} × the clustered bandits'"
        held, open_, ratio = excess.high <= 0, excess.low <= 0, share(ours, theirs)
        checks.append(holds(text, held, open_, difference_s=excess, ratio=ratio))
    return checks


def _mean(beyond: Beyond, at: Scene, policy: str, beta_ms: float) -> float:
    return float(at.of(beyond, policy, beta_ms=beta_ms).regret_ms.mean())


BARS: tuple[tuple[str, str, Callable[[Beyond], list[Check]]], ...] = (
    (
        "B1",
        "Worlds “paper” and “layered”: at most 1/20 of FedLinUCB-DW's regret, with fresh pools.",
        far_less_regret,
    ),
    (
        "B2",
        "There, not above FedLinUCB-DW at its own best radius in hindsight.",
        best_in_hindsight,
    ),
    ("B3", "There, within 1 % of the oracle's latency after the first 100 rounds.", near_oracle),
    ("B4", "There, with pools one own round old: never above FedLinUCB-DW.", stale_pools),
    (
        "B5",
        "Not worse than FedLinUCB-DW or LinUCB in any world, model and fleet size: the upper bound "
        "of the difference stays under 5 % of the rival's regret or 1 % of the oracle's latency; "
        "in worlds that no line fits, each rival at its own best radius there.",
        not_worse,
    ),
    (
        "B6",
        "World “drifting”: within 5 % of the new optimum 50 to 150 rounds after the link changes.",
        drifting_recovery,
    ),
    ("B7", "World “drifting”: no lock-in at the end.", no_lock_in),
    (
        "B8",
        "World “heterogeneous”, all models together: at most half of plain grouping's regret.",
        plain_grouping,
    ),
    ("B9", "World “adversary”: honest devices lose less than 5 %.", one_liar),
    (
        "B10",
        "Every ingredient helps in some world: by at least 0.1 % of the oracle's latency, with an "
        "interval above zero.",
        every_ingredient_helps,
    ),
    (
        "B11",
        "Types that nobody named, or that were named wrongly: within 0.5 % of the oracle, and at "
        "most 0.2 points above true labels.",
        without_labels,
    ),
    (
        "B12",
        "There, below the clustered bandits HetoFedBandit and FCLUB at their best radius, and at "
        "most 1/5 of their regret over all together.",
        clustered_rivals,
    ),
)


def judge_bars(beyond: Beyond) -> list[Bar]:
    """Every bar's checks; with few seeds a statement that is not refuted is undecided."""
    few = max((trial.seeds for trial in beyond.trials.values()), default=0) < DECISIVE_SEEDS
    return [Bar(name, text, check(beyond), few) for name, text, check in BARS]
