"""Every bar can be held and missed, and the section shows what was run and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from synthetic import as_claimed, results

from cans.learning.policies import ABLATIONS, CLUSTERED
from cans.simulation.reproduce.beyond.bars import BARS, judge_bars
from cans.simulation.reproduce.beyond.ingredients import worth
from cans.simulation.reproduce.beyond.section import beyond_document, beyond_the_paper
from cans.simulation.reproduce.beyond.studies import (
    Beyond,
    Trial,
    load_grids,
    marks,
    play_trial,
)
from cans.simulation.reproduce.claims.bar import Bar
from cans.simulation.reproduce.command import write_report
from cans.simulation.reproduce.studies.experiments import Study, study
from cans.simulation.worlds.bent import BENT
from cans.simulation.worlds.named import WORLDS

OPTIMUM = 100_000.0


def trial(seeds: int, regret: float, *, late: float, wrong: float, honest: float) -> Trial:
    """A made-up trial: regret in ms, and how far it stays from the optimum afterwards."""
    wave = 1 + 0.01 * np.cos(np.arange(seeds))  # a seed deviates alike in every setting
    rounds = marks(2500)
    return Trial(
        regret_ms=regret * wave,
        optimum_ms=np.full(seeds, OPTIMUM),
        settled_ms=(1 + late) * wave,
        settled_optimum_ms=wave,
        honest_ms=honest * wave,
        bytes=np.full(seeds, 1e6),
        wrongly_local=np.full(seeds, wrong),
        curve=regret * wave[:, None] * rounds / rounds[-1],
        recovery=np.full((seeds, 2), late),
        around=np.full((seeds, 2, 35), 40.0 * (1 + late)),
        optimum_around=np.full((seeds, 2, 35), 40.0),
    )


def good(each: Study, seeds: int) -> Trial:
    settings = each.settings
    regret = 10_000.0
    if settings.policy == "cans":
        regret = 20.0
    elif settings.policy in ABLATIONS:
        regret = 500.0
    elif settings.hyperparameters.beta_ms == 0.0 and settings.policy not in CLUSTERED:
        regret = 25.0
    return trial(seeds, regret, late=0.001, wrong=0.001, honest=40.0)


def bad(each: Study, seeds: int) -> Trial:
    ours = each.settings.policy == "cans"
    regret = 20_000.0 if ours or each.settings.policy in ABLATIONS else 10_000.0
    honest = 60.0 if each.settings.world == "adversary" else 40.0
    return trial(seeds, regret, late=0.2, wrong=0.3, honest=honest)


def made_up(formula: Callable[[Study, int], Trial], quick: bool = False) -> Beyond:
    return Beyond({each: formula(each, seeds) for each, seeds in load_grids(quick).items()})


def ingredients(beyond: Beyond) -> Bar:
    return next(bar for bar in judge_bars(beyond) if bar.id == "B10")


@pytest.mark.parametrize("quick", [False, True])
def test_bars_that_are_held(quick: bool) -> None:
    bars = judge_bars(made_up(good, quick))
    assert {bar.id: bar.verdict for bar in bars} == {name: "held" for name, _, _ in BARS}


def test_bars_that_are_missed() -> None:
    bars = judge_bars(made_up(bad))
    assert {bar.id: bar.verdict for bar in bars} == {name: "missed" for name, _, _ in BARS}
    assert all(bar.to_dict()["missed"] for bar in bars)


def spread_out(each: Study, seeds: int) -> Trial:
    """As `good`, but one seed of ours went badly: the intervals contain every bar on regret."""
    found = good(each, seeds)
    if each.settings.policy == "cans":
        found.regret_ms[-1] = 20_000.0
    return found


def test_what_few_seeds_leave_open_is_undecided() -> None:
    quick = {bar.id: bar for bar in judge_bars(made_up(spread_out, quick=True))}
    assert quick["B1"].verdict == "undecided"
    assert quick["B1"].to_dict()["undecided"]
    assert not quick["B1"].to_dict()["missed"]
    assert quick["B7"].verdict == "held"
    full = {bar.id: bar for bar in judge_bars(made_up(spread_out))}
    assert full["B1"].verdict == "missed"
    assert not full["B1"].to_dict()["undecided"]
    refuted = {bar.id: bar for bar in judge_bars(made_up(bad, quick=True))}
    assert refuted["B1"].verdict == "missed"


def test_an_ingredient_may_help_in_a_world_that_quick_leaves_out() -> None:
    def formula(each: Study, seeds: int) -> Trial:
        if each.settings.policy == "cans-one-codec":  # helps in world `codecs`, which is not there
            return trial(seeds, 20.0, late=0.0, wrong=0.0, honest=40.0)
        return good(each, seeds)

    quick, full = ingredients(made_up(formula, quick=True)), ingredients(made_up(formula))
    assert (quick.verdict, full.verdict) == ("undecided", "missed")
    assert quick.to_dict()["undecided"] == full.to_dict()["missed"]


def test_a_bar_without_runs_is_not_held() -> None:
    assert Bar("B0", "", []).verdict == "not run"
    only = {each: one for each, one in made_up(good).trials.items() if each.settings.devices == 10}
    verdicts = {bar.id: bar.verdict for bar in judge_bars(Beyond(only))}
    assert verdicts.pop("B5") == "held"
    assert set(verdicts.values()) == {"not run"}


def test_the_grid_asks_for_every_world_size_and_ingredient() -> None:
    wanted = load_grids()
    for world in BENT:
        for model, devices in product(("vgg16", "resnet50", "vit_b16"), (1, 5, 25, 100)):
            what = {"world": world, "model": model, "devices": devices}
            assert wanted[study(policy="cans", **what)] == 20
            for policy, beta in product(("fedlinucb-dw", "linucb"), (0.0, 1.0, 5.0, 10.0, 50.0)):
                assert wanted[study(policy=policy, beta_ms=beta, **what)] == 20
    for world in WORLDS.keys() - BENT.keys():
        for model in ("vgg16", "resnet50", "vit_b16"):
            what = {"world": world, "model": model}
            assert wanted[study(policy="cans", **what)] == 20
            for devices in (1, 10, 25, 50, 200):
                for policy in ("cans", "fedlinucb-dw", "linucb"):
                    assert study(policy=policy, devices=devices, **what) in wanted
            assert all(study(policy=ablated, **what) in wanted for ablated in ABLATIONS)
    assert wanted[study(policy="cans-no-offset", world="heterogeneous")] == 20
    assert sum(load_grids(True).values()) < sum(wanted.values()) / 20


def test_an_ingredient_that_helps_nowhere_is_named() -> None:
    def formula(each: Study, seeds: int) -> Trial:
        if each.settings.policy == "cans-any-sign":
            return trial(seeds, 20.0, late=0.0, wrong=0.0, honest=40.0)
        return good(each, seeds)

    beyond = made_up(formula)
    (check,) = [c for c in ingredients(beyond).checks if not c.holds]
    assert check.statement.startswith("cans-any-sign")
    text = " ".join(beyond_the_paper(beyond, judge_bars(beyond)).text)
    assert "costs nothing: cans-any-sign." in text
    helped = worth(beyond, "cans-no-probes", "paper")
    assert helped is not None
    assert helped.helps
    assert helped.ratio == pytest.approx(25.0)


def test_seeds_are_paired_where_one_side_has_more() -> None:
    def formula(each: Study, seeds: int) -> Trial:
        return good(each, 5 if each.settings.policy == "cans-no-offset" else seeds)

    beyond = made_up(formula)
    ours = beyond.of(policy="cans", world="cells")
    without = beyond.of(policy="cans-no-offset", world="cells")
    assert ours.seeds > without.seeds
    assert worth(beyond, "cans-no-offset", "cells") is not None


@pytest.mark.parametrize(("formula", "quick"), [(good, False), (bad, True)])
def test_the_section_stands_in_the_page(
    tmp_path: Path, formula: Callable[[Study, int], Trial], quick: bool
) -> None:
    beyond = made_up(formula, quick)
    _, bars = write_report(results(as_claimed), tmp_path, beyond)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Beyond the paper" in page
    assert "nan" not in page
    assert all(f'id="{bar.id}"' in page for bar in bars)
    assert ("Missed" in page) is (formula is bad)
    for picture in (tmp_path / "figures").glob("beyond-*.svg"):
        ElementTree.fromstring(picture.read_text("utf-8"))
    document = json.loads((tmp_path / "beyond.json").read_text("utf-8"))
    assert [each["id"] for each in document["bars"]] == [name for name, _, _ in BARS]
    assert document == json.loads(json.dumps(beyond_document(beyond, bars), allow_nan=False))
    assert len(document["settings"]) == len(beyond.trials)


@pytest.mark.usefixtures("compiled")
def test_a_trial_agrees_with_the_record() -> None:
    one = play_trial(study(policy="cans", world="drifting", model="resnet50"), 2)
    assert one.seeds == 2
    assert one.curve[:, -1] == pytest.approx(one.regret_ms)
    assert (one.around >= one.optimum_around - 1e-9).all()
    assert (one.recovery >= -1e-12).all()
    assert (one.settled_ms >= one.settled_optimum_ms - 1e-9).all()
    oracle = play_trial(study(policy="oracle", world="drifting", model="resnet50"), 2)
    assert oracle.regret_ms.tolist() == [0.0, 0.0]
    assert oracle.optimum_ms == pytest.approx(one.optimum_ms)
