"""From checks to verdicts: a claim is a list of statements, each true or false in this run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cans.learning.arithmetic.arrays import Array
from cans.learning.policies import POLICIES, policy_named
from cans.simulation.reproduce.claims.intervals import Interval, paired
from cans.simulation.reproduce.studies.outcomes import Results

MODEL_TITLES = {"vgg16": "VGG-16", "resnet50": "ResNet-50", "vit_b16": "ViT-B/16"}
VERDICTS = ("reproduced", "partly", "not reproduced")


@dataclass(frozen=True)
class Check:
    """One statement, whether it holds here, and the intervals it was decided on."""

    statement: str
    holds: bool
    numbers: dict[str, Any]
    open: bool = False  # it does not hold here, but more seeds may show that it does


@dataclass(frozen=True)
class Sentence:
    """One claim of the paper, in words."""

    id: str
    text: str


@dataclass(frozen=True)
class Claim(Sentence):
    """A sentence that a simulation can check, in any world."""

    check: Callable[[Results, str], Sequence[Check]]
    key: Callable[[Results, str], str]  # the number to show first
    remark: Callable[[Results, str], str] | str = ""


@dataclass(frozen=True)
class Judgement:
    """A claim's verdict in one world."""

    claim: Sentence
    world: str
    checks: Sequence[Check]
    key: str
    remark: str = field(default="")

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"claim {self.claim.id!r} was judged without a single check")

    @property
    def verdict(self) -> str:
        """All statements hold; at least half of them; fewer."""
        held = sum(check.holds for check in self.checks)
        if held == len(self.checks):
            return "reproduced"
        return "partly" if 2 * held >= len(self.checks) else "not reproduced"

    @property
    def explanation(self) -> str:
        held = sum(check.holds for check in self.checks)
        failed = [check.statement for check in self.checks if not check.holds]
        text = f"{held} of {len(self.checks)} statements hold."
        if failed:
            text += " Not shown here: " + "; ".join(failed) + "."
        return f"{text} {self.remark}".strip()

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "numbers": {
                check.statement: {"holds": check.holds, **check.numbers} for check in self.checks
            },
            "explanation": self.explanation,
        }


def judge(claim: Claim, results: Results, world: str) -> Judgement:
    """Check a claim in a world; the verdict follows from the numbers alone."""
    remark = claim.remark if isinstance(claim.remark, str) else claim.remark(results, world)
    return Judgement(claim, world, claim.check(results, world), claim.key(results, world), remark)


@dataclass(frozen=True)
class Verdicts:
    """The judgements of one claim: in the simulated worlds, and on the prototype."""

    paper: Judgement | None = None
    literal: Judgement | None = None
    prototype: Judgement | None = None

    @property
    def foremost(self) -> Judgement:
        """The paper's own kind of evidence: its prototype's claims are about the prototype."""
        found = self.prototype or self.paper
        assert found is not None
        return found

    def to_dict(self) -> dict[str, Any]:
        first = self.foremost
        found = {
            "id": first.claim.id,
            "claim": first.claim.text,
            **first.to_dict(),
            "key_number": first.key,
            "world": first.world,
        }
        if self.paper is not None and self.paper is not first:
            found["simulated"] = {**self.paper.to_dict(), "key_number": self.paper.key}
        if self.literal is not None:
            found["literal"] = self.literal.to_dict()
        return found


def by_claim(
    paper: Iterable[Judgement], literal: Iterable[Judgement], prototype: Iterable[Judgement] = ()
) -> list[Verdicts]:
    """The verdicts of each claim side by side, in the paper's order."""
    worlds = [{each.claim.id: each for each in world} for world in (paper, literal, prototype)]
    ids = sorted({id_ for world in worlds for id_ in world}, key=lambda id_: int(id_[1:]))
    return [Verdicts(*(world.get(id_) for world in worlds)) for id_ in ids]


def claims_document(verdicts: Iterable[Verdicts]) -> list[Any]:
    """claims.json: the foremost verdict of every claim, with the others inside."""
    return [each.to_dict() for each in verdicts]


def title(policy: str) -> str:
    return policy_named(policy).title


def holds(statement: str, holding: bool, open_: bool = False, /, **numbers: Any) -> Check:
    """A check, with its intervals as plain numbers; `open_`: the intervals do not refute it."""
    shown = {k: v.to_dict() if isinstance(v, Interval) else v for k, v in numbers.items()}
    return Check(statement, bool(holding), shown, bool(open_ and not holding))


def signed(share: float) -> str:
    """A relative change with its sign, in per cent.

    >>> signed(-0.012), signed(0.3)
    ('−1.2%', '+30.0%')
    """
    return f"{share:+.1%}".replace("-", "−")


METRICS = {"regret_ms": 1e3, "latency_ms": 1.0, "error_ms": 1.0}  # shown in s, ms, ms
UNITS = {"regret_ms": "s", "latency_ms": "ms", "error_ms": "ms"}


def values(results: Results, metric: str, **what: Any) -> Array:
    """A final number over the seeds, in the unit it is shown in."""
    numbers: Array = getattr(results.of(**what), metric) / METRICS[metric]
    return numbers


def extreme(
    results: Results,
    metric: str,
    policy: str,
    others: Sequence[str],
    *,
    lowest: bool = True,
    **what: Any,
) -> Check:
    """A policy lies below (or above) each of the others: every paired interval says so."""
    mine = values(results, metric, policy=policy, **what)
    differences: dict[str, Interval] = {
        other: paired(mine, values(results, metric, policy=other, **what)) for other in others
    }
    fine = [each.below_zero if lowest else each.above_zero for each in differences.values()]
    place = MODEL_TITLES[what["model"]]
    if "devices" in what:
        place += f" with N = {what['devices']}"
    name = {"regret_ms": "regret", "latency_ms": "latency", "error_ms": "estimation error"}[metric]
    order = "lower" if lowest else "higher"
    names = [title(other) for other in others]
    rest = " and ".join(names)
    if len(names) > 2:
        only_learners = all(POLICIES[other].learns for other in others)
        rest = "the other learners" if only_learners else "all others"
    return Check(
        f"{place}: {title(policy)} has {order} {name} than {rest}",
        all(fine),
        {
            f"{title(policy)} minus {title(other)} ({UNITS[metric]})": each.to_dict()
            for other, each in differences.items()
        },
    )
