"""The report's section on world `crowded`."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from synthetic import as_claimed, results

from cans.simulation.crowd import CrowdSettings, simulate_crowd
from cans.simulation.reproduce.beyond import crowded
from cans.simulation.reproduce.beyond.crowded import LOADS, PLACES, SHOWN, Crowded
from cans.simulation.reproduce.command import write_report


def made_up(load: float) -> Crowded:
    local = min(load / 2.0, 1.0)
    shares = np.tile([0.5 * (1 - local), 0.5 * (1 - local), local], (3, 3, 1))
    return Crowded(np.full(3, 1.0 + load), shares)


def test_the_section_stands_in_the_page(tmp_path: Path) -> None:
    crowds = {(load, policy): made_up(load) for load in LOADS for policy in SHOWN}
    write_report(results(as_claimed), tmp_path, crowds=crowds)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Everyone at once" in page
    assert all(label in page for label in PLACES.values())
    assert not re.search(r"\bnan\b", page)
    for name in ("crowded-latency", "crowded-cuts"):
        ElementTree.fromstring((tmp_path / "figures" / f"{name}.svg").read_text("utf-8"))


def test_a_run_is_that_of_cans_simulate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowded, "FIRST_SEED", 0)
    what = CrowdSettings(policy="offload", devices=6, rounds=60)
    found = crowded.play_crowd(what, 2)
    runs = simulate_crowd(what, 2)["runs"]
    expected = [run["mean_latency_ms"] / run["best_static_ms"] for run in runs]
    assert found.over_best == pytest.approx(expected)
    assert found.shares[..., 0] == pytest.approx(1.0), "all of every type send the raw input"
    assert found.shares[..., 1:] == pytest.approx(0.0)


def test_every_policy_is_shown_at_every_load_and_fewer_of_them_when_quick() -> None:
    wanted, quick = crowded.crowd_runs(False), crowded.crowd_runs(True)
    assert {(each.load, each.policy) for each in wanted} == {
        (load, policy) for load in LOADS for policy in SHOWN
    }
    assert sum(quick.values()) < sum(wanted.values()) / 5
