"""Sections that compare methods at the paper's settings."""

from __future__ import annotations

from cans.simulation.reproduce.claims.methods import DW, FED, LINUCB, WARM
from cans.simulation.reproduce.claims.verdicts import title
from cans.simulation.reproduce.page.section import SHOWN, Section, curves, mean, per_model
from cans.simulation.reproduce.page.tables import literal_table, regret_table, seeds_table
from cans.simulation.reproduce.studies.outcomes import Results


def regret(results: Results) -> Section:
    def less(model: str) -> str:
        ours = mean(results, "regret_ms", "paper", model, DW)
        return f"{1 - ours / mean(results, 'regret_ms', 'paper', model, LINUCB):.0%} less"

    literal = per_model(lambda m: f"{mean(results, 'regret_ms', 'literal', m, DW):.0f} s")
    return Section(
        "Cumulative regret",
        [
            f"In world “paper”, {title(DW)} ends with this much regret compared with "
            f"{title(LINUCB)}: {per_model(less)}. {title(FED)} pools unlike devices and pays "
            "for it for ever: its curve keeps rising when those of other learners are flat.",
            "In world “literal” sending anything costs more than computing it, so that "
            f"Local is the oracle; what {title(DW)} loses there ({literal}) it loses by "
            "trying offloading at all.",
        ],
        [curves(results, "regret", "regret", "cumulative regret (s)", SHOWN)],
    )


def latency(results: Results) -> Section:
    def gap(model: str) -> str:
        best = mean(results, "latency_ms", "paper", model, "oracle")
        return f"{mean(results, 'latency_ms', 'paper', model, DW) - best:.1f} ms"

    def start(model: str) -> str:
        outcome = results.of(model=model, world="paper", policy=DW)
        return f"{outcome.at('regret', 100).mean() / outcome.regret_ms.mean():.0%}"

    def early(model: str) -> str:
        outcome = results.of(model=model, world="paper", policy=FED)
        start, later = (outcome.at("latency", rounds).mean() for rounds in (10, 100))
        return f"{start:.0f} → {later:.0f} ms"

    return Section(
        "Average latency",
        [
            f"After the last round {title(DW)}'s average lies above the oracle's by "
            f"{per_model(gap)}. A running average never forgets its start: of all regret, the "
            f"first hundred rounds cost {per_model(start)}.",
            f"The paper sees {title(FED)}'s average rise before it falls. Here it goes, from round "
            f"10 to round 100, {per_model(early)}.",
        ],
        [curves(results, "latency", "latency", "average latency (ms)", SHOWN, log_x=True)],
    )


def error(results: Results) -> Section:
    say = per_model(
        lambda m: (
            f"{mean(results, 'error_ms', 'paper', m, DW):.2f} against "
            f"{mean(results, 'error_ms', 'paper', m, FED):.2f} ms"
        )
    )
    return Section(
        "Latency estimation error",
        [
            "The mean distance between predicted and true latency at the chosen point, "
            f"{title(DW)} against {title(FED)}: {say}.",
            f"{title(FED)} settles on a few points and predicts those well, whether or not they "
            "are good ones: a small error is not a good choice.",
        ],
        [
            curves(
                results,
                "estimation-error",
                "error",
                "mean estimation error (ms)",
                (DW, WARM, LINUCB, FED),
                log_x=True,
            )
        ],
    )


def final_regrets(results: Results) -> Section:
    return Section(
        "Final regrets, beside an independent run",
        [
            "“Independent” is a separate NumPy simulation of world “paper” that shares no code "
            "with this one (20 seeds, mean ± standard deviation). Agreement says that both read "
            "the paper alike, not that its authors ran this.",
            "The paper averages three seeds; the last table puts three beside all "
            f"{results.seeds}.",
        ],
        tables=[regret_table(results), literal_table(results), seeds_table(results)],
    )


def ablation(results: Results) -> Section:
    policies = results.sweep("ablation", "policy")

    def saved(other: str) -> str:
        def share(model: str) -> str:
            ours = mean(results, "regret_ms", "paper", model, DW)
            return f"{1 - ours / mean(results, 'regret_ms', 'paper', model, other):.0%}"

        return per_model(share)

    return Section(
        "Ablation",
        [
            f"Of {title(policies[1])}'s regret the warm start saves {saved(policies[1])}.",
            f"Of {title(policies[2])}'s regret cooperation saves {saved(policies[2])}. The paper "
            "shows its ablation on the prototype; this one is simulated.",
        ],
        [
            curves(results, "ablation", "latency", "average latency (ms)", policies, log_x=True),
            curves(
                results, "ablation-regret", "regret", "cumulative regret (s)", policies, log_y=False
            ),
        ],
    )
