"""Laws of learning: what an observation teaches, what an estimate is, when it is uploaded."""

from __future__ import annotations

from math import log1p

import numpy as np

from cans.learning.arithmetic import exchange, linear
from cans.learning.arithmetic.arrays import Array
from cans.learning.arithmetic.layout import fleet_state
from cans.learning.choice import Latencies
from cans.learning.device.learner import DeviceLearner
from cans.learning.laws.tiny_fleet import Case, TinyFleet, gram
from cans.learning.policies import Part
from cans.learning.table import SEGMENTS


def learns_nothing_where_nothing_runs(case: Case) -> None:
    """Point 0 teaches nothing about the front-end, point P nothing about the back-end, whatever
    was measured there; every other choice is counted once by every part."""
    for choice in range(case.table.choices):
        learner = case.learner()
        before = counts(learner)
        uploads = learner.observe(choice, Latencies(*(1.0 + case.draw() for _ in SEGMENTS)))
        for part in case.policy.parts:
            informative = bool(case.rows(part)[choice].any())
            assert counts(learner)[part.name] == before[part.name] + informative
            assert informative or part.name not in {upload.key.part for upload in uploads}


def learns_nothing_from_what_was_not_measured(case: Case) -> None:
    """A part of which a segment was not measured stays as it is."""
    for missing in SEGMENTS:
        learner = case.learner()
        latencies = Latencies(1.0, 1.0, 1.0)._replace(**{missing: None})
        learner.observe(case.table.local - 1, latencies)
        for part in case.policy.parts:
            assert missing not in part.explains or counts(learner)[part.name] == 0


def estimates_by_ridge_regression(case: Case) -> None:
    """Mean and width equal a dense least-squares solution on the raw observations (Alg. 1 line 12,
    Eq. 3)."""
    fleet = TinyFleet(case)
    fleet.play(60)
    for device, learner in enumerate(fleet.learners):
        known = case.known()
        mean = np.zeros(case.table.choices) if known is None else known.copy()
        width = np.zeros(case.table.choices)
        for part in case.policy.parts:
            rows = case.rows(part)
            theta, inverse = ridge_regression(
                fleet.estimated_from(device, part), rows.shape[1], case.ridge
            )
            mean += rows @ theta
            width += case.radius() * np.sqrt(np.einsum("ci,ij,cj->c", rows, inverse, rows))
        for ours, theirs in zip(learner.predictions(), (mean, width), strict=True):
            scale = max(1.0, np.abs(mean).max(), np.abs(width).max())
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * scale)


def ridge_regression(
    observed: list[tuple[Array, float]], dimension: int, ridge: float
) -> tuple[Array, Array]:
    """theta that minimises |X theta - y|^2 + ridge |theta|^2, and (X'X + ridge I)^-1."""
    x = np.vstack([*(each for each, _ in observed), np.sqrt(ridge) * np.eye(dimension)])
    y = np.array([*(each for _, each in observed), *np.zeros(dimension)])
    return np.linalg.lstsq(x, y, rcond=None)[0], np.linalg.inv(x.T @ x)


def triggers_on_the_determinant_ratio(case: Case) -> None:
    """A part is uploaded exactly when det(Sigma + Sigma_loc) > (1 + alpha) det(Sigma), with the
    ridge in both (Alg. 1 line 8); DisLinUCB when log of that ratio times observations reaches D;
    an eager part when there is anything to upload. (Parts with events have a law of their own, and
    a physical policy weighs what it sums up.)"""
    fleet = TinyFleet(case)
    for _ in range(60):
        device = case.below(fleet.devices)
        played = fleet.round(device)
        uploaded = {upload.key.part for upload in played.uploads}
        for part in case.policy.parts:
            if not part.shared:
                assert part.name not in uploaded, "a part that is not shared was uploaded"
                continue
            if part.events or (case.policy.physical and not part.eager):
                continue
            found, limit = _evidence(fleet, device, part)
            if abs(found - limit) > 1e-7 * limit:  # closer, rounding may decide
                assert (found > limit) is (part.name in uploaded), (found, limit)
        for upload in played.uploads:
            fleet.exchange(device, upload)


def tells_at_once_what_matters(case: Case) -> None:
    """A part with events uploads everything while its pool is young, nothing that is not there, and
    never keeps more to itself than `HEARTBEAT` observations."""
    fleet = TinyFleet(case)
    for _ in range(120):
        device = case.below(fleet.devices)
        known = {each.key.part: each.synced.weight for each in fleet.learners[device].records()}
        played = fleet.round(device)
        uploaded = {upload.key.part: upload for upload in played.uploads}
        kept = counts(fleet.learners[device])
        for part in (part for part in case.policy.parts if part.shared and part.events):
            own = kept[part.name]
            young = known[part.name] < case.rows(part).shape[1] + exchange.YOUNG
            assert part.name in uploaded or own < exchange.HEARTBEAT
            assert part.name in uploaded or not (young and own)
            assert part.name not in uploaded or uploaded[part.name].statistics.count <= own
            assert part.name not in uploaded or own
        for upload in played.uploads:
            fleet.exchange(device, upload)


def _evidence(fleet: TinyFleet, device: int, part: Part) -> tuple[float, float]:
    """What the trigger compares: (growth, threshold)."""
    numbers, own = fleet.case.hyperparameters, fleet.local[device, part.name]
    if part.eager:
        return float(len(own)), 0.5
    growth = dense_growth(fleet, device, part)
    if fleet.case.policy.fleet_sync:
        return growth * len(own), numbers.fleet_threshold
    return growth, log1p(numbers.alpha if part.alpha is None else part.alpha)


def dense_growth(fleet: TinyFleet, device: int, part: Part) -> float:
    """log det(Sigma + Sigma_loc) - log det(Sigma) from the raw observations."""
    dimension = fleet.case.rows(part).shape[1]
    base = fleet.case.ridge * np.eye(dimension)
    base += gram(fleet.synced[device, part.name], dimension)
    grown = base + gram(fleet.local[device, part.name], dimension)
    return float(np.linalg.slogdet(grown)[1] - np.linalg.slogdet(base)[1])


def gain_bounds_the_growth(case: Case) -> None:
    """The cheap sum that decides whether to ask for a determinant is never below the truth."""
    fleet = TinyFleet(case)
    for _ in range(60):
        played = fleet.round(case.below(fleet.devices))
        learner = fleet.learners[played.device]
        for number, part in enumerate(case.policy.parts):
            if part.shared and not part.eager:
                growth = dense_growth(fleet, played.device, part)
                assert learner._state.gain[0, number] >= growth - 1e-7 * max(1.0, growth)
        if case.draw() < 0.5:  # otherwise the upload stays on its way
            for upload in played.uploads:
                fleet.exchange(played.device, upload)


def does_not_drift(case: Case, updates: int = 100_000) -> None:
    """After 10^5 rank-one updates reach, mean and norm are those of a fresh solution."""
    own = [n for n, part in enumerate(case.policy.parts) if estimates_with_local(part)]
    state = fleet_state(case.table, case.policy, case.hyperparameters, 1)
    for part in own:
        linear.estimate(state, 0, part)
        informative = np.flatnonzero(state.informative[part])
        for _ in range(updates):
            choice = int(informative[case.below(len(informative))])
            linear.observe(state, 0, part, choice, case.milliseconds())
        rows = state.rows[part]
        local = state.local[0, part]
        sigma = linear.sigma_of(local, case.ridge)
        solved = np.linalg.solve(sigma, rows.T)
        norm = np.sqrt(np.einsum("cd,dc->c", rows, solved))
        mean = solved.T @ linear.b_of(local)
        for ours, fresh in (
            (state.reach[0, part], state.rows[part] @ np.linalg.inv(sigma)),
            (state.mean[0, part], mean),
            (state.norm[0, part], norm),
        ):
            np.testing.assert_allclose(ours, fresh, rtol=1e-5, atol=1e-7 * np.abs(fresh).max())


def counts(learner: DeviceLearner) -> dict[str, int]:
    """How many observations each part's buffer holds."""
    return {record.key.part: record.local.count for record in learner.records()}


def estimates_with_local(part: Part) -> bool:
    """Whether a device's own observations count at once, without a download."""
    return part.uses_local or not part.shared
