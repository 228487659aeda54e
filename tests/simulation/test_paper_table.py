"""World `paper`, 20 seeds: the final regrets of an independent simulation (PAPER-NOTES section 2).

Seconds over 2,500 rounds. FedLinUCB is heavy-tailed: its median is compared.
"""

from __future__ import annotations

import numpy as np
import pytest

import cans

POLICIES = ("fedlinucb-dw", "fedlinucb-decouple", "warmstart-linucb", "linucb", "fedlinucb")
EXPECTED = {
    "vgg16": (8.76, 9.67, 9.70, 10.98, 34.4),
    "resnet50": (2.77, 3.24, 3.77, 4.25, 25.6),
    "vit_b16": (2.04, 3.10, 5.25, 6.79, 27.5),
}
OTHERS = {"vgg16": (245, 137), "resnet50": (84, 28), "vit_b16": (107, 157)}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("model", EXPECTED)
def test_regrets_of_the_papers_world(model) -> None:
    found = []
    for policy, expected in zip(POLICIES, EXPECTED[model], strict=True):
        regrets = [run.regret_ms / 1e3 for run in cans.simulate(model, policy, seeds=20).runs]
        if policy == "fedlinucb":
            found.append(float(np.median(regrets)))
            assert found[-1] == pytest.approx(expected, rel=0.25)
        else:
            found.append(float(np.mean(regrets)))
            loose = model == "vit_b16" and policy in ("fedlinucb-dw", "fedlinucb-decouple")
            assert found[-1] == pytest.approx(expected, rel=0.30 if loose else 0.10), policy
    dw, decouple, warm, linucb, fedlinucb = found
    # the table's own order; on VGG-16 the two in the middle are 9.67 and 9.70
    assert dw < min(decouple, warm)
    assert max(decouple, warm) < linucb < fedlinucb
    assert model == "vgg16" or decouple < warm


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("model", OTHERS)
def test_regrets_of_those_that_do_not_learn(model) -> None:
    for policy, expected in zip(("random", "local"), OTHERS[model], strict=True):
        regrets = [run.regret_ms / 1e3 for run in cans.simulate(model, policy, seeds=20).runs]
        assert np.mean(regrets) == pytest.approx(expected, rel=0.05)


@pytest.mark.usefixtures("compiled")
def test_waiting_for_the_next_request_can_lock_a_device_in() -> None:
    """A device that went local has no next request: what it knows stays old. The table is for
    `immediate`; this is what the other delivery costs (docs/paper-to-code.md)."""
    for policy in ("fedlinucb-decouple", "fedlinucb"):
        now, later = (
            cans.simulate("vgg16", policy, seeds=20, delivery=delivery).to_dict()["mean"]
            for delivery in ("immediate", "next-contact")
        )
        assert later["regret_ms"] > 2 * now["regret_ms"]
