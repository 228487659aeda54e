"""The prototype's claims can come out both ways, and `cans reproduce --prototype` reports them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from cans.cli import app
from cans.errors import RunError
from cans.simulation.reproduce import command
from cans.simulation.reproduce.claims.verdicts import Judgement
from cans.testbed.prototype import running
from cans.testbed.prototype.claims import judgements
from cans.testbed.prototype.measured import Measured, backbone, measured
from cans.testbed.report.records import FIXED, SWEEP, Row
from cans.testbed.run.calibration import Calibration
from cans.testbed.run.experiment import Experiment
from cans.testbed.run.experiment_run import Outcome
from cans.testbed.run.layout import seats
from cans.testbed.run.reading import read_experiment

Level = Callable[[str, str], float]  # of a model and a policy, ms
RANK = {"fedlinucb-dw": 1.0, "fedlinucb": 1.05, "fedlinucb-decouple": 1.1, "linucb-warmstart": 1.5,
        "linucb": 2.1, "random": 5.0, "cans": 0.8, FIXED: 0.7}  # fmt: skip


def as_claimed(model: str, policy: str) -> float:
    """A testbed on which all the paper says of its prototype is true."""
    helps = policy == "fedlinucb-decouple" and model == "vit_b16"
    return 100.0 * (1.4 if helps else RANK.get(policy, 3.0))


def all_alike(model: str, policy: str) -> float:
    return 120.0 if policy == "fedlinucb" else 100.0


def outcome(experiment: Experiment, model: str, level: Level) -> Outcome:
    made = Outcome(model, [])
    made.network = "made up"
    noise = np.random.default_rng(1)
    for seat in seats(experiment):
        made.calibration.append(
            Calibration(seat.name, seat.group.type, 4.0, 4.1, 20.0, 19.0, 300.0)
        )
        for round_ in range(experiment.rounds):
            for policy in (FIXED, SWEEP, *(each.label for each in experiment.policies)):
                ms = level(backbone(model), policy) + noise.normal(0.0, 2.0)
                made.rows.append(_row(seat.name, seat.group.type, policy, round_, ms))
    return made


def _row(device: str, kind: str, policy: str, round_: int, ms: float) -> Row:
    return {
        "device": device, "device_type": kind, "policy": policy, "round": round_, "error": "",
        "waited_ms": ms, "fallback": "", "point": 0, "point_name": "input", "codec": "float32",
        "front_ms": 0.0, "link_ms": ms, "server_ms": 0.0, "energy_mj": 1.0,
    }  # fmt: skip


def run(name: str, level: Level) -> Measured:
    experiment = read_experiment(name)
    outcomes = [outcome(experiment, model, level) for model in experiment.models]
    return measured(experiment, outcomes)


def judged(level: Level) -> dict[str, Judgement]:
    found = judgements(run("prototype", level), run("ablation", level))
    return {each.claim.id: each for each in found}


def test_claims_that_are_true_are_reproduced() -> None:
    found = judged(as_claimed)
    assert list(found) == ["C9", "C10", "C14"]
    for judgement in found.values():
        assert judgement.verdict == "reproduced", judgement.explanation
    assert len(found["C9"].checks) == 2 * 3 + 1
    assert found["C9"].key.count("−52") == 6


def test_claims_that_are_false_are_not() -> None:
    for judgement in judged(all_alike).values():
        assert judgement.verdict == "not reproduced", judgement.explanation


def test_the_rounds_are_compared_and_not_the_sweep() -> None:
    found = run("prototype", as_claimed)
    assert FIXED in found.policies
    assert SWEEP not in found.policies
    assert [place.title for place in found.places()][:2] == [
        "VGG-16 on Xavier NX", "ResNet-50 on Xavier NX"
    ]  # fmt: skip
    place = next(found.places())
    assert len(found.of(place, "linucb")) == found.experiment.rounds


def test_an_unanswered_inference_is_not_passed_over() -> None:
    experiment = read_experiment("ablation")
    made = outcome(experiment, "vgg16-96", as_claimed)
    made.rows[-1]["error"] = "too late"
    with pytest.raises(RunError, match="did not answer in round"):
        measured(experiment, [made])


def test_the_report_has_the_prototype(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.simulation.synthetic import as_claimed as simulated
    from tests.simulation.synthetic import results

    monkeypatch.setattr(command, "numba_installed", lambda: True)
    monkeypatch.setattr(command, "run_experiments", lambda *_: results(simulated))
    monkeypatch.setattr(command, "run_beyond_the_paper", lambda *_: None)
    monkeypatch.setattr(
        running, "run_model", lambda experiment, model, say: outcome(experiment, model, as_claimed)
    )
    monkeypatch.setattr("cans.testbed.report.report.write_trace", lambda *_: 0)
    out = tmp_path / "report"
    done = CliRunner().invoke(app, ["reproduce", "--prototype", "--quick", "--out", str(out)])
    assert done.exit_code == 0, done.exception
    assert "C9" in done.stdout
    claims = {each["id"]: each for each in json.loads((out / "claims.json").read_text("utf-8"))}
    assert list(claims) == [f"C{number}" for number in range(1, 16)]
    assert claims["C9"]["world"] == claims["C10"]["world"] == "prototype"
    assert "simulated" not in claims["C9"]
    assert claims["C10"]["simulated"]["verdict"] == "reproduced"
    assert "literal" in claims["C10"]
    page = (out / "report.html").read_text("utf-8")
    for text in ('id="C9"', "The prototype, on real processes", "Best fixed", "Prototype</th>"):
        assert text in page
    assert "Not here" not in page
    for name in ("prototype-latency", "prototype-ablation"):
        svg = ElementTree.fromstring((out / f"figures/{name}.svg").read_text("utf-8"))
        assert len(svg.findall("{http://www.w3.org/2000/svg}svg")) == 6
    for name in ("prototype", "ablation"):
        rows = (out / f"prototype/{name}/inferences.jsonl").read_text("utf-8").splitlines()
        assert len(rows) > 100
