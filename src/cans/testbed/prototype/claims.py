"""The claims about the prototype: C9, C10 and C14, statement by statement.

Policies of one run took turns, so a difference of two is paired by round. What one run can show is
in its intervals; what another run would give is not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.simulation.reproduce.claims.intervals import Interval, contrast, mean_interval, paired
from cans.simulation.reproduce.claims.methods import COMPARABLE, DW, FED, LINUCB
from cans.simulation.reproduce.claims.verdicts import (
    MODEL_TITLES,
    Check,
    Judgement,
    Sentence,
    holds,
    signed,
    title,
)
from cans.simulation.reproduce.prototype import WORLD
from cans.testbed.prototype.measured import DEVICE_TITLES, Measured, Place

DECOUPLE, WARMSTART = "fedlinucb-decouple", "linucb-warmstart"
UP_TO = 0.5  # "up to 50 %"

C9 = Sentence(
    "C9", "On the prototype FedLinUCB-DW's average latency is up to 50 % below that of LinUCB."
)
C10 = Sentence(
    "C10",
    "Ablation: both parts of FedLinUCB-DW help; cooperation matters on VGG-16 and ResNet-50, "
    "the warm start on ViT-16.",
)
C14 = Sentence(
    "C14", "On the prototype, whose devices are alike, FedLinUCB comes close to FedLinUCB-DW."
)


def judgements(prototype: Measured, ablation: Measured) -> list[Judgement]:
    """Every claim about the prototype, by the numbers alone."""
    return [
        Judgement(C9, WORLD, c9(prototype), _key_below(prototype), _scale(prototype)),
        Judgement(C10, WORLD, c10(ablation), _key_ablation(ablation), _scale(ablation)),
        Judgement(C14, WORLD, c14(prototype), _key_close(prototype), _scale(prototype)),
    ]


def lower(found: Measured, place: Place, policy: str, *others: str) -> Check:
    """A policy's average latency lies below that of each of the others."""
    differences = {
        other: paired(found.of(place, policy), found.of(place, other)) for other in others
    }
    return Check(
        f"{place.title}: {title(policy)} has lower latency than "
        + " and ".join(title(other) for other in others),
        all(each.below_zero for each in differences.values()),
        {
            f"{title(policy)} minus {title(other)} (ms)": each.to_dict()
            for other, each in differences.items()
        },
    )


def share_below(found: Measured, place: Place, policy: str, other: str) -> Array:
    """By how much of the other's average latency a policy is lower, round by round."""
    theirs = found.of(place, other)
    shares: Array = (theirs - found.of(place, policy)) / theirs.mean()
    return shares


# --- C9: against the policy that learns alone ---


def c9(found: Measured) -> list[Check]:
    checks = [lower(found, place, DW, LINUCB) for place in found.places()]
    below = {
        place: mean_interval(share_below(found, place, DW, LINUCB)) for place in found.places()
    }
    most = max(below, key=lambda place: below[place].mean)
    enough = below[most].mean >= UP_TO * (1 - COMPARABLE)
    text = f"the largest reduction is {UP_TO:.0%}, give or take a tenth of it, or more"
    return [*checks, holds(text, enough, largest_on=most.title, reduction=below[most])]


def _key_below(found: Measured) -> str:
    return f"{title(DW)} against {title(LINUCB)}: " + _by_device(
        found, lambda place: -float(share_below(found, place, DW, LINUCB).mean())
    )


# --- C10: the ablation ---


def c10(found: Measured) -> list[Check]:
    checks = [lower(found, place, DW, DECOUPLE, WARMSTART) for place in found.places()]
    checks += [
        lower(found, place, DECOUPLE, WARMSTART)
        for place in found.places()
        if place.model != "vit_b16"
    ]
    for device in found.devices:
        transformer = share_below(found, Place("vit_b16", device), DW, DECOUPLE)
        for model in ("vgg16", "resnet50"):
            other = share_below(found, Place(model, device), DW, DECOUPLE)
            more = contrast((1, transformer), (-1, other))
            text = (
                f"{DEVICE_TITLES.get(device, device)}: the warm start saves a larger share on "
                f"ViT-B/16 than on {MODEL_TITLES[model]}"
            )
            checks.append(holds(text, more.above_zero, difference_of_shares=more))
    return checks


def _key_ablation(found: Measured) -> str:
    parts = []
    for other in (DECOUPLE, WARMSTART):
        shares = [
            np.mean([share_below(found, Place(model, device), DW, other).mean()
                     for device in found.devices])
            for model in MODEL_TITLES
        ]  # fmt: skip
        shown = " / ".join(signed(-float(share)) for share in shares)
        parts.append(f"{shown} against {title(other)}")
    return f"{title(DW)}: {'; '.join(parts)}"


# --- C14: sharing everything, among devices that are alike ---


def closeness(found: Measured, place: Place) -> Interval:
    """FedLinUCB's latency relative to FedLinUCB-DW's, once both have learned: the second half."""
    half = len(found.of(place, FED)) // 2
    ours, theirs = found.of(place, DW)[half:], found.of(place, FED)[half:]
    return mean_interval((theirs - ours) / ours.mean())


def c14(found: Measured) -> list[Check]:
    checks = []
    for place in found.places():
        gap = closeness(found, place)
        text = (
            f"{place.title}: in the second half of the rounds {title(FED)} is at most "
            f"{COMPARABLE:.0%} above {title(DW)}"
        )
        checks.append(holds(text, gap.high <= COMPARABLE, relative_difference=gap))
    return checks


def _key_close(found: Measured) -> str:
    return f"{title(FED)} against {title(DW)}, second half: " + _by_device(
        found, lambda place: closeness(found, place).mean
    )


def _by_device(found: Measured, share: Callable[[Place], float]) -> str:
    return "; ".join(
        f"{DEVICE_TITLES.get(device, device)} "
        + " / ".join(signed(share(Place(model, device))) for model in MODEL_TITLES)
        for device in found.devices
    )


def _scale(found: Measured) -> str:
    experiment = found.experiment
    return (
        f"One run of {experiment.rounds} inferences per device and policy; experiment "
        f"“{experiment.name}”, models {', '.join(experiment.models)}."
    )
