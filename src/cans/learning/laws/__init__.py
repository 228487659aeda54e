"""The laws that every policy obeys.

    for law in yield_checks(policy):
        law(Case(policy, table, hyperparameters, draw))

A law is a function of a `Case` that raises `AssertionError` when it is broken. The draws of the
case are the only chance in it. A new policy is covered as soon as it is in `POLICIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cans.learning.laws import choosing, estimating, sharing
from cans.learning.laws.tiny_fleet import Case, TinyFleet, random_table
from cans.learning.policies import Choose, Policy

__all__ = ["Case", "Law", "TinyFleet", "random_table", "yield_checks"]

Law = Callable[[Case], None]


def yield_checks(policy: Policy) -> Iterator[Law]:
    """Every law that says something about this policy, in the order to read them."""
    yield choosing.chooses_what_is_allowed
    yield choosing.is_deterministic
    compares = policy.choose in (Choose.OPTIMISTIC, Choose.SAMPLED)  # scores
    if compares and not any(part.bends for part in policy.parts):  # equal features, equal scores
        yield choosing.ties_take_the_lower_index
    if not policy.parts:
        return
    yield estimating.learns_nothing_where_nothing_runs
    yield estimating.learns_nothing_from_what_was_not_measured
    watched = any(part.watched for part in policy.parts)  # weighs by how far off something is
    if not policy.physical and not watched:
        yield estimating.estimates_by_ridge_regression
    if any(estimating.estimates_with_local(part) for part in policy.parts) and not policy.physical:
        yield estimating.does_not_drift
    if any(part.events for part in policy.parts):
        yield estimating.tells_at_once_what_matters
    if not all(part.events for part in policy.parts):
        yield estimating.triggers_on_the_determinant_ratio
    if any(part.shared and not part.eager for part in policy.parts) and not policy.physical:
        yield estimating.gain_bounds_the_growth
    yield sharing.conserves_every_observation
    yield sharing.resumes_after_a_restart
    if any(part.shared for part in policy.parts):
        yield sharing.merges_commute
        yield sharing.repeats_change_nothing
        yield sharing.old_epochs_are_retired
