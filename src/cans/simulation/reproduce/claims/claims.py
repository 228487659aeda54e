"""The paper's simulated claims, C1 to C15, with the number each one shows first.

C9 and C14 are about the prototype alone and are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cans.simulation.reproduce.claims.methods import (
    DW,
    FED,
    LINUCB,
    MODELS,
    WARM,
    c1,
    c2,
    c3,
    c4,
    c5,
    c6,
    c10,
    c12,
    c15,
    error_spread,
)
from cans.simulation.reproduce.claims.sweeps import (
    bound_shares,
    c7,
    c8,
    c11,
    c13,
    gamma_remark,
    gamma_rise,
    regret_per_device,
    trend,
)
from cans.simulation.reproduce.claims.verdicts import Claim, signed, title, values
from cans.simulation.reproduce.studies.outcomes import Results


def _ratio(
    metric: str, policy: str, other: str, models: Sequence[str] = MODELS, **what: Any
) -> Callable[[Results, str], str]:
    def key(results: Results, world: str) -> str:
        shares = [
            values(results, metric, model=m, world=world, policy=policy, **what).mean()
            / max(values(results, metric, model=m, world=world, policy=other, **what).mean(), 1e-12)
            for m in models
        ]
        shown = " / ".join(f"{s:.2f}" if s < 1000 else "∞" for s in shares)
        return f"{title(policy)} = {shown} × {title(other)}"

    return key


def _key_gamma(results: Results, world: str) -> str:
    rises = [gamma_rise(results, world, model, "device") for model in MODELS]
    gamma = max(results.sweep("gamma", "gamma"))
    return f"latency {' / '.join(signed(rise.mean) for rise in rises)} at γ = {gamma:.0%}"


def _key_bounds(results: Results, world: str) -> str:
    shares = [bound_shares(results, world, model, "theory") for model in MODELS]
    regret, uploads = (max(float(each[i].max()) for each in shares) for i in (0, 1))
    return f"at most {regret:.1%} of the regret bound, {uploads:.0%} of the upload bound"


def _key_case(results: Results, world: str) -> str:
    effects = {
        name: 2 ** trend(*regret_per_device(results, world, "vgg16", swept)).mean - 1
        for name, swept in (("M", "devices"), ("K", "types"), ("n_off", "offline_runs"))
    }
    shown = ", ".join(f"{name} {signed(effect)}" for name, effect in effects.items())
    return f"regret per doubling on VGG-16: {shown}"


def _key_spread(results: Results, world: str) -> str:
    spread = [error_spread(results, world, model, DW) for model in MODELS]
    return "sd / mean " + " / ".join(f"{s:.0%}" for s in spread)


def _key_local(results: Results, world: str) -> str:
    regret = {
        policy: values(results, "regret_ms", model="resnet50", world=world, policy=policy).mean()
        for policy in ("local", FED, "random")
    }
    return ", ".join(f"{title(policy)} {seconds:.1f} s" for policy, seconds in regret.items())


TWO = ("vgg16", "vit_b16")
CLAIMS = (
    Claim(
        "C1",
        "FedLinUCB-DW has the lowest cumulative regret on all three models, and it is sublinear.",
        c1,
        _ratio("regret_ms", DW, LINUCB),
    ),
    Claim(
        "C2",
        "FedLinUCB is the worst learner on VGG-16 and ViT-16.",
        c2,
        _ratio("regret_ms", FED, LINUCB, TWO),
    ),
    Claim(
        "C3",
        "LinUCB has lower regret than Random and Local on VGG-16 and ResNet-50.",
        c3,
        _ratio("regret_ms", LINUCB, "local", ("vgg16", "resnet50")),
    ),
    Claim(
        "C4",
        "Warm-Start LinUCB has lower regret than LinUCB on VGG-16 and ViT-16; on ResNet-50 they "
        "are comparable.",
        c4,
        _ratio("regret_ms", WARM, LINUCB),
    ),
    Claim(
        "C5",
        "FedLinUCB-DW has the lowest average latency; FedLinUCB has the highest of the learners, "
        "and it rises before it falls.",
        c5,
        _ratio("latency_ms", DW, LINUCB),
    ),
    Claim(
        "C6",
        "FedLinUCB-DW has the lowest latency estimation error, FedLinUCB the highest.",
        c6,
        _ratio("error_ms", DW, LINUCB),
    ),
    Claim(
        "C7",
        "FedLinUCB-DW has the lowest average latency for N = 10, 25, 50; FedLinUCB degrades at 50.",
        c7,
        _ratio("latency_ms", DW, LINUCB, devices=50),
    ),
    Claim(
        "C8",
        "Average latency rises with heterogeneity within a group (gamma 0 to 30 %), more on VGG-16 "
        "and ViT-16 than on ResNet-50.",
        c8,
        _key_gamma,
        gamma_remark,
    ),
    Claim(
        "C10",
        "Ablation: both parts of FedLinUCB-DW help; cooperation matters on VGG-16 and ResNet-50, "
        "the warm start on ViT-16.",
        c10,
        _ratio("latency_ms", DW, "linucb-warmstart"),
        "The paper shows this on its prototype; here it is simulated.",
    ),
    Claim(
        "C11",
        "Regret and communication stay below the supplement's bounds.",
        c11,
        _key_bounds,
    ),
    Claim(
        "C12",
        "On ResNet-50 purely local inference is worse than all but FedLinUCB and Random.",
        c12,
        _key_local,
    ),
    Claim(
        "C13",
        "Case study: regret per device falls with more devices, fewer types and more offline runs.",
        c13,
        _key_case,
    ),
    Claim(
        "C15",
        "The estimation error fluctuates most on ResNet-50, for all four learners.",
        c15,
        _key_spread,
    ),
)
