"""A policy of a user's own: every law, as data, by `module:name`, in the simulator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cans
from cans.errors import InputError
from cans.learning.laws import Case, Law, random_table, yield_checks
from cans.learning.policies import (
    ABLATIONS,
    CLUSTERED,
    POLICIES,
    Hyperparameters,
    Part,
    Physical,
    Policy,
    Pool,
)
from cans.learning.policy_data import policy_from_dict, policy_to_dict
from cans.own_policy import find_policy

MINE = """
from cans.learning import Part, Policy, Pool

policy = Policy(
    "mine",
    "My own",
    (
        Part("front", ("front",), Pool.GROUP, warm=True, alpha=0.5, events=True, uses_local=True),
        Part("rest", ("link", "server"), Pool.NETWORK, uses_local=True, watched=True),
    ),
    fresh=True,
    ridge=0.3,
)
not_one = "a string"
"""

OWN = (
    Policy(
        "plain-events",
        "",
        (
            Part("front", ("front",), Pool.GROUP, warm=True, alpha=0.5, events=True),
            Part("rest", ("link", "server"), Pool.NETWORK, uses_local=True, watched=True),
        ),
        fresh=True,
        ridge=0.3,
    ),
    Policy(
        "physical-alone",
        "",
        (Part("all", ("front", "link", "server"), Pool.DEVICE, warm=True, spread=0.1),),
        physical=Physical(prune=False),
    ),
    Policy(
        "physical-waits",
        "",
        (
            Part("front", ("front",), Pool.EVERYONE, alpha=3.0),
            Part("link", ("link",), Pool.NETWORK),
        ),
        physical=Physical(kappa=0.0),
        probe_after_s=5.0,
    ),
)


@pytest.mark.parametrize(
    ("policy", "law"),
    [
        pytest.param(policy, law, id=f"{policy.name}-{law.__name__}")
        for policy in OWN
        for law in yield_checks(policy)
        if law.__name__ != "does_not_drift"
    ],
)
def test_every_law_holds(policy: Policy, law: Law) -> None:
    for seed in range(2):
        draw = np.random.default_rng(seed).random
        numbers = Hyperparameters(ridge=0.2, alpha=0.7, offline_runs=3)
        law(Case(policy, random_table(draw, 7, (2, 1, 2)), numbers, draw))


@pytest.mark.parametrize("policy", [*POLICIES.values(), *ABLATIONS.values(), *CLUSTERED.values()])
def test_a_policy_travels_as_data(policy: Policy) -> None:
    assert policy_from_dict(json.loads(json.dumps(policy_to_dict(policy)))) == policy


GOOD = policy_to_dict(OWN[0])


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        {**GOOD, "name": ""},
        {**GOOD, "name": 3},
        {**GOOD, "surprise": 1},
        {**GOOD, "ridge": 0.0},
        {**GOOD, "ridge": "small"},
        {**GOOD, "fresh": 1},
        {**GOOD, "choose": "by magic"},
        {**GOOD, "knows": ["moon"]},
        {**GOOD, "parts": {}},
        {**GOOD, "parts": [{"name": "front"}]},
        {**GOOD, "parts": GOOD["parts"] * 2},
        {**GOOD, "parts": GOOD["parts"] * 20},
        {**GOOD, "parts": [{**GOOD["parts"][0], "pool": "planet"}]},
        {**GOOD, "parts": [{**GOOD["parts"][0], "alpha": -1.0}]},
        {**GOOD, "parts": [{**GOOD["parts"][0], "explains": []}]},
        {**GOOD, "physical": {"kappa": float("nan")}},
        {**GOOD, "physical": [1]},
    ],
)
def test_data_that_is_no_policy_is_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        policy_from_dict(wrong)


def test_it_is_found_in_a_file_and_simulates(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "my_policy.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    mine = find_policy("my_policy:policy")
    by_name = cans.simulate("vgg16", "my_policy:policy", seeds=1, rounds=40, engine="reference")
    by_object = cans.simulate("vgg16", mine, seeds=1, rounds=40, engine="reference")
    assert by_name.to_dict()["policy"] == by_object.to_dict()["policy"] == "mine"
    assert by_name.runs[0].picks == by_object.runs[0].picks
    assert by_object.runs[0].uploads > 0


@pytest.mark.parametrize(
    "text", ["nowhere:policy", "my_policy:nothing", "my_policy:not_one", "no-such-policy", ":"]
)
def test_what_is_none_is_one_clear_error(text: str, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "my_policy.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError):
        find_policy(text)


def test_another_policys_name_is_taken() -> None:
    stolen = replace(OWN[0], name="cans")
    with pytest.raises(InputError, match="another policy's name"):
        cans.simulate("vgg16", stolen, seeds=1, rounds=10, engine="reference")
