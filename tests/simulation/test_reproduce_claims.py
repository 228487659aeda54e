"""Every claim can come out both ways, and only the numbers decide."""

from __future__ import annotations

import json

import numpy as np
import pytest
from synthetic import all_alike, as_claimed, results

from cans.simulation.reproduce.claims.claims import CLAIMS
from cans.simulation.reproduce.claims.intervals import contrast, mean_interval, paired, t_quantile
from cans.simulation.reproduce.claims.verdicts import (
    VERDICTS,
    Check,
    Claim,
    Judgement,
    by_claim,
    claims_document,
    judge,
)

by_id = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)


@by_id
def test_a_claim_that_is_true_is_reproduced(claim: Claim) -> None:
    judgement = judge(claim, results(as_claimed), "paper")
    assert judgement.verdict == "reproduced", judgement.explanation


@by_id
def test_a_claim_that_is_false_is_not(claim: Claim) -> None:
    judgement = judge(claim, results(all_alike), "paper")
    assert judgement.verdict == "not reproduced", judgement.explanation
    assert "Not shown here" in judgement.explanation


@by_id
def test_one_seed_concludes_nothing_about_differences(claim: Claim) -> None:
    judgement = judge(claim, results(as_claimed, seeds=1), "paper")
    if claim.id != "C11":  # a bound holds or not in every single run
        assert judgement.verdict == "not reproduced"


def test_a_verdict_counts_statements() -> None:
    claim = Claim("C0", "", lambda *_: (), lambda *_: "")

    def verdict(*held: bool) -> str:
        checks = [Check(str(number), each, {}) for number, each in enumerate(held)]
        return Judgement(claim, "paper", checks, "").verdict

    assert verdict(True, True) == "reproduced"
    assert verdict(True, False) == "partly"
    assert verdict(True, False, False) == "not reproduced"


def test_claims_json_has_its_keys_and_is_json() -> None:
    made = results(as_claimed)
    judgements = [[judge(claim, made, world) for claim in CLAIMS] for world in ("paper", "literal")]
    document = json.loads(json.dumps(claims_document(by_claim(*judgements)), allow_nan=False))
    assert [each["id"] for each in document] == [claim.id for claim in CLAIMS]
    for each in document:
        assert {"id", "claim", "verdict", "numbers", "explanation", "literal"} <= set(each)
        assert each["verdict"] in VERDICTS
        assert each["literal"]["verdict"] in VERDICTS
        assert all(isinstance(numbers["holds"], bool) for numbers in each["numbers"].values())


def test_pairing_sees_what_an_unpaired_comparison_cannot() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(100, 10, 20)
    better = base - rng.uniform(0.5, 1.5, 20)
    assert paired(better, base).below_zero
    assert not contrast((1, better), (-1, base)).below_zero


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    covered = [mean_interval(rng.normal(3, 2, 20)) for _ in range(2000)]
    share = np.mean([each.low < 3 < each.high for each in covered])
    assert 0.93 < share < 0.97
    assert t_quantile(31) == pytest.approx(2.0395, abs=0.003)
    assert contrast((1, np.ones(5)), (-1, np.ones(5))) == (0.0, 0.0, 0.0)


def test_a_claim_that_nothing_checks_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a single check"):
        Judgement(CLAIMS[0], "paper", [], "")
