"""The laws that every policy obeys.

    for law, why_not in yield_checks(policy):
        if why_not is None:
            law(Case(policy, table, hyperparameters, draw))

A law is a function of a `Case` that raises `AssertionError` when it is broken. The draws of the
case are the only chance in it. A new policy is covered as soon as it is in `POLICIES`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import log1p

import numpy as np

from cans.learning import algebra, arithmetic
from cans.learning.device import DeviceLearner, Latencies
from cans.learning.edge import EdgeAggregator, Pool, Received
from cans.learning.layout import fleet_state
from cans.learning.messages import Download, PoolKey, Upload
from cans.learning.policies import Choose, Part, Policy
from cans.learning.rehearsal import Case, Company, gram, observations, offline_observations
from cans.learning.state import Array
from cans.learning.statistics import SufficientStatistics
from cans.learning.table import SEGMENTS, PartitionTable

Law = Callable[[Case], None]


def yield_checks(policy: Policy) -> Iterator[tuple[Law, str | None]]:
    """Every law, in the order to read them, and why it does not apply (None: it does)."""
    scores = policy.choose in (Choose.OPTIMISTIC, Choose.SAMPLED)
    own = any(estimates_with_local(part) for part in policy.parts) and not policy.physical
    shared = any(part.shared for part in policy.parts)
    lazy = any(part.shared and not part.eager for part in policy.parts)
    compares = None if scores else "it chooses without comparing scores"
    learns = None if policy.parts else "it learns nothing"
    shares = None if shared else "it shares nothing"
    solves = learns if not policy.physical else "its estimates respect physics: `physical.py`"
    waits = None if lazy else "it uploads without asking how much was learned, or never"
    refines = None if own else "no estimate is refined: each is solved afresh at a download"
    yield chooses_what_is_allowed, None
    yield ties_take_the_lower_index, compares
    yield is_deterministic, None
    yield learns_nothing_where_nothing_runs, learns
    yield learns_nothing_from_what_was_not_measured, learns
    yield estimates_by_ridge_regression, solves
    yield triggers_on_the_determinant_ratio, learns
    yield gain_bounds_the_growth, waits
    yield conserves_every_observation, learns
    yield counts_are_exact_at_any_age, learns
    yield merges_commute, shares
    yield repeats_change_nothing, shares
    yield old_epochs_are_retired, shares
    yield resumes_after_a_restart, learns
    yield does_not_drift, refines


def estimates_with_local(part: Part) -> bool:
    """Whether a device's own observations count at once, without a download."""
    return part.uses_local or not part.shared


# --- choosing ------------------------------------------------------------------------------------


def chooses_what_is_allowed(case: Case) -> None:
    """Whatever is forbidden is not chosen, as long as one choice is not."""
    company = Company(case)
    for _ in range(20):
        device = case.below(company.devices)
        allowed = np.array([case.draw() < 0.4 for _ in range(case.table.choices)])
        allowed[case.below(case.table.choices)] = True
        choice = company.learners[device].select(case.context()._replace(allowed=allowed))
        assert allowed[choice.row], f"chose {choice.row}, allowed were {np.flatnonzero(allowed)}"
        company.learners[device].observe(choice, Latencies(*(case.milliseconds(),) * 3))


def ties_take_the_lower_index(case: Case) -> None:
    """Two equal rows have equal scores in every round: the later one is never chosen."""
    twin = 1 + case.below(case.table.choices - 2)
    case = replace(case, table=with_twin(case.table, twin))
    rounds = Company(case).play(40)
    assert all(each.choice.row != twin + 1 for each in rounds)
    assert all(each.choice.tied for each in rounds if each.choice.row == twin)


def with_twin(table: PartitionTable, row: int) -> PartitionTable:
    """The same table with one row twice."""
    front, link, server = (
        np.insert(columns, row, columns[row], axis=0)
        for columns in (table.front, table.link, table.server)
    )
    points = [*table.points[:row], "twin", *table.points[row:]]
    return PartitionTable(table.model, points, front, link, server)


def is_deterministic(case: Case) -> None:
    """The same draws give the same rounds and the same state, to the last bit."""
    tape = [case.draw() for _ in range(2000)]
    first, second = (Company(replace(case, draw=iter(tape).__next__)) for _ in range(2))
    ours, theirs = first.play(30), second.play(30)
    assert [r.choice.row for r in ours] == [r.choice.row for r in theirs]
    for one, other in zip(first.learners, second.learners, strict=True):
        for a, b in zip(one.records(), other.records(), strict=True):
            assert a.local.equals(b.local, 0.0)
            assert a.synced.equals(b.synced, 0.0)


# --- learning ------------------------------------------------------------------------------------


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
    company = Company(case)
    company.play(60)
    for device, learner in enumerate(company.learners):
        known = case.known()
        mean = np.zeros(case.table.choices) if known is None else known.copy()
        width = np.zeros(case.table.choices)
        for part in case.policy.parts:
            rows = case.rows(part)
            theta, inverse = ridge_regression(
                company.estimated_from(device, part), rows.shape[1], case.hyperparameters.ridge
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
    an eager part when there is anything to upload."""
    company = Company(case)
    for _ in range(60):
        device = case.below(company.devices)
        played = company.round(device)
        uploaded = {upload.key.part for upload in played.uploads}
        for part in case.policy.parts:
            if not part.shared:
                assert part.name not in uploaded, "a part that is not shared was uploaded"
                continue
            found, limit = _evidence(company, device, part)
            if abs(found - limit) > 1e-7 * limit:  # closer, rounding may decide
                assert (found > limit) is (part.name in uploaded), (found, limit)
        for upload in played.uploads:
            company.exchange(device, upload)


def _evidence(company: Company, device: int, part: Part) -> tuple[float, float]:
    """What the trigger compares: (growth, threshold)."""
    numbers, own = company.case.hyperparameters, company.local[device, part.name]
    if part.eager:
        return float(len(own)), 0.5
    growth = dense_growth(company, device, part)
    if company.case.policy.fleet_sync:
        return growth * len(own), numbers.fleet_threshold
    return growth, log1p(numbers.alpha)


def dense_growth(company: Company, device: int, part: Part) -> float:
    """log det(Sigma + Sigma_loc) - log det(Sigma) from the raw observations."""
    dimension = company.case.rows(part).shape[1]
    base = company.case.hyperparameters.ridge * np.eye(dimension)
    base += gram(company.synced[device, part.name], dimension)
    grown = base + gram(company.local[device, part.name], dimension)
    return float(np.linalg.slogdet(grown)[1] - np.linalg.slogdet(base)[1])


def gain_bounds_the_growth(case: Case) -> None:
    """The cheap sum that decides whether to ask for a determinant is never below the truth."""
    company = Company(case)
    for _ in range(60):
        played = company.round(case.below(company.devices))
        learner = company.learners[played.device]
        for number, part in enumerate(case.policy.parts):
            if part.shared and not part.eager:
                growth = dense_growth(company, played.device, part)
                assert learner._state.gain[0, number] >= growth - 1e-7 * max(1.0, growth)
        if case.draw() < 0.5:  # otherwise the upload stays on its way
            for upload in played.uploads:
                company.exchange(played.device, upload)


def does_not_drift(case: Case, updates: int = 100_000) -> None:
    """After 10^5 rank-one updates reach, mean and norm are those of a fresh solution."""
    own = [n for n, part in enumerate(case.policy.parts) if estimates_with_local(part)]
    state = fleet_state(case.table, case.policy, case.hyperparameters, 1)
    for part in own:
        arithmetic.estimate(state, 0, part)
        informative = np.flatnonzero(state.informative[part])
        for _ in range(updates):
            choice = int(informative[case.below(len(informative))])
            arithmetic.observe(state, 0, part, choice, case.milliseconds())
        rows = state.rows[part]
        local = state.local[0, part]
        sigma = algebra.sigma_of(local, case.hyperparameters.ridge)
        solved = np.linalg.solve(sigma, rows.T)
        norm = np.sqrt(np.einsum("cd,dc->c", rows, solved))
        mean = solved.T @ algebra.b_of(local)
        for ours, fresh in (
            (state.reach[0, part], state.rows[part] @ np.linalg.inv(sigma)),
            (state.mean[0, part], mean),
            (state.norm[0, part], norm),
        ):
            np.testing.assert_allclose(ours, fresh, rtol=1e-5, atol=1e-7 * np.abs(fresh).max())


# --- sharing -------------------------------------------------------------------------------------


@dataclass
class Chaos:
    """A fleet whose messages are lost, repeated, delayed and reordered, whose devices restart and
    whose pools are reset; and the plain sum of everything that was ever observed."""

    case: Case
    seconds: float = 0.0  # that each step takes, on average
    time: float = 0.0
    devices: int = 3
    learners: list[DeviceLearner] = field(default_factory=list)
    edge: EdgeAggregator = field(default_factory=EdgeAggregator)
    uploads: list[tuple[int, Upload]] = field(default_factory=list)
    downloads: list[tuple[int, Download]] = field(default_factory=list)
    observed: dict[PoolKey, SufficientStatistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for device in range(self.devices):
            self.learners.append(self.case.learner(device))
            offline = self.case.offline()
            for part in self.case.policy.parts:
                if part.warm:
                    for x, y in offline_observations(part, self.case, offline):
                        self.note(device, part.name, x, y)
            self.send(device, self.learners[device].join(offline))

    def note(self, device: int, part: str, x: Array, y: float) -> None:
        key = next(r.key for r in self.learners[device].records() if r.key.part == part)
        one = SufficientStatistics.of(x, y)
        self.observed[key] = self.observed[key] + one if key in self.observed else one

    def send(self, device: int, uploads: tuple[Upload, ...]) -> None:
        self.uploads += [(device, upload) for upload in uploads]

    def step(self) -> None:
        """Something happens."""
        self.time += 2.0 * self.seconds * self.case.draw()
        device, chance = self.case.below(self.devices), self.case.draw()
        if chance < 0.55:
            self.infer(device)
        elif chance < 0.70:
            self.deliver_upload()
        elif chance < 0.82:
            self.deliver_download()
        elif chance < 0.87:
            self.lose()
        elif chance < 0.92:
            self.restart(device)
        elif chance < 0.96:
            self.send(device, self.learners[device].flush(self.time))
        elif self.edge.pools:
            keys = sorted(self.edge.pools)
            self.edge.reset(keys[self.case.below(len(keys))])

    def infer(self, device: int) -> None:
        choice = self.learners[device].select(self.case.context()._replace(time=self.time))
        latencies = Latencies(*(self.case.milliseconds() for _ in SEGMENTS))
        self.send(device, self.learners[device].observe(choice, latencies, self.time))
        for part, x, y in observations(self.case, choice.row, latencies):
            self.note(device, part, x, y)

    def deliver_upload(self) -> None:
        """In any order; one in three arrives again later."""
        if self.uploads:
            device, upload = self.uploads.pop(self.case.below(len(self.uploads)))
            self.downloads.append((device, self.edge.merge(upload, self.time)))
            if self.case.draw() < 1 / 3:
                self.uploads.append((device, upload))

    def deliver_download(self) -> None:
        if self.downloads:
            device, download = self.downloads.pop(self.case.below(len(self.downloads)))
            self.learners[device].adopt(download)
            if self.case.draw() < 1 / 3:
                self.downloads.append((device, download))

    def lose(self) -> None:
        if self.uploads and self.case.draw() < 0.5:
            self.uploads.pop(self.case.below(len(self.uploads)))
        elif self.downloads:
            self.downloads.pop(self.case.below(len(self.downloads)))

    def restart(self, device: int) -> None:
        kept = self.learners[device].records()
        self.learners[device] = self.case.learner(device)
        self.learners[device].restore(kept)
        self.send(device, self.learners[device].pending())

    def accounted(self) -> dict[PoolKey, SufficientStatistics]:
        """Where everything is now: pools, retired epochs, buffers; what is both on its way and
        already merged counts once."""
        found: dict[PoolKey, list[SufficientStatistics]] = defaultdict(list)
        for key, pool in self.edge.pools.items():
            found[key].append(everything(pool))
        for learner in self.learners:
            who = learner.identity
            for record in learner.records():
                received = self.edge.received.get(
                    (record.key, who.device, who.incarnation), Received()
                )
                local = record.local
                if record.sent is not None and record.sequence - 1 in received:
                    local = local - record.sent
                found[record.key] += [local, record.retired]
        return {key: _sum(each) for key, each in found.items()}


def _sum(statistics: list[SufficientStatistics]) -> SufficientStatistics:
    total = statistics[0]
    for each in statistics[1:]:
        total = total + each
    return total


def conserves_every_observation(case: Case) -> None:
    """pools + buffers + retired = offline + every observation, after every step of a chaotic run:
    counts exactly, sums to 1e-9. (A physical policy weighs observations by how noise grows and by
    how far off they are: there the counts are conserved.)"""
    chaos = Chaos(case)
    for _ in range(120):
        chaos.step()
        accounted = chaos.accounted()
        for key, observed in chaos.observed.items():
            assert accounted[key].count == observed.count, f"{key} lost or gained observations"
            if not case.policy.physical:
                assert accounted[key].equals(observed), f"{key} has other sums"
        assert all(s.count == 0 for key, s in accounted.items() if key not in chaos.observed)


def counts_are_exact_at_any_age(case: Case) -> None:
    """While time passes observations may lose weight, but never their number."""
    chaos = Chaos(case, seconds=60.0)
    for _ in range(120):
        chaos.step()
        accounted = chaos.accounted()
        assert all(accounted[key].count == seen.count for key, seen in chaos.observed.items())


def merges_commute(case: Case) -> None:
    """The same uploads in any order make the same pools. (A watched pool weighs an upload by what
    it knew before, and may start anew at another moment: there the counts are the same.)"""
    uploads = _some_uploads(case)
    one, other = EdgeAggregator(), EdgeAggregator()
    for edge, order in ((one, uploads), (other, case.shuffled(uploads))):
        for upload in order:
            edge.merge(upload)
    assert one.pools.keys() == other.pools.keys()
    for key, pool in one.pools.items():
        ours, theirs = everything(pool), everything(other.pools[key])
        assert ours.count == theirs.count
        assert case.policy.part(key.part).watched or ours.equals(theirs)


def everything(pool: Pool) -> SufficientStatistics:
    """All that a pool ever took in."""
    return pool.statistics if pool.retired is None else pool.statistics + pool.retired


def repeats_change_nothing(case: Case) -> None:
    """An upload merged again, or a download adopted again, changes nothing at all."""
    uploads = _some_uploads(case)
    edge = EdgeAggregator()
    answers = [edge.merge(upload) for upload in uploads]
    before: dict[PoolKey, Pool] = dict(edge.pools)
    for upload in case.shuffled(uploads):
        edge.merge(upload)
    assert all(edge.pools[key] is pool for key, pool in before.items())

    learner = case.learner()
    for upload in learner.join(case.offline()):
        answers.append(edge.merge(upload))
        learner.adopt(answers[-1])
        kept = learner.records()
        learner.adopt(answers[-1])
        for a, b in zip(kept, learner.records(), strict=True):
            assert (a.epoch, a.sequence) == (b.epoch, b.sequence)
            assert a.local.equals(b.local, 0.0)
            assert a.synced.equals(b.synced, 0.0)


def old_epochs_are_retired(case: Case) -> None:
    """What was observed before a reset never enters the pool after it, not even when its upload
    was on its way, the device has heard of the reset, and then restarts."""
    edge, learner = EdgeAggregator(), case.learner()
    for upload in learner.join(case.offline()):
        learner.adopt(edge.merge(upload))
    for _ in range(10):
        learner.observe(learner.select(case.context()), Latencies(1.0, 2.0, 3.0))
    learner.flush()  # lost on the way
    for key in learner.pools():
        edge.reset(key)
        learner.adopt(edge.download(key))
    again = case.learner()
    again.restore(learner.records())
    for upload in again.pending():
        again.adopt(edge.merge(upload))
    for key in again.pools():
        assert edge.pools[key].statistics.count == 0, f"{key} took in an older epoch"
    assert not again.pending()
    assert all(r.local.count == 0 for r in again.records() if r.key in again.pools())


def resumes_after_a_restart(case: Case) -> None:
    """Kept records are enough: the same estimates, buffers and uploads on their way. (How a
    device differs from its pool is not kept: it is soon learned again.)"""
    company = Company(case)
    company.play(40)
    learner = company.learners[0]
    on_their_way = learner.flush()
    again = case.learner(0)
    again.restore(learner.records())
    if not case.policy.physical:
        for ours, theirs in zip(again.predictions(), learner.predictions(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7)
    for after, before in zip(again.records(), learner.records(), strict=True):
        assert (after.epoch, after.sequence) == (before.epoch, before.sequence)
        assert after.sent_epoch == before.sent_epoch
        assert after.local.equals(before.local, 0.0)
        assert after.synced.equals(before.synced, 0.0)
    names = [(u.key, u.epoch, u.sequence, u.statistics.count) for u in on_their_way]
    assert [(u.key, u.epoch, u.sequence, u.statistics.count) for u in again.pending()] == names


def _some_uploads(case: Case) -> list[Upload]:
    """Uploads of several devices to one fleet's pools, none of them merged anywhere yet."""
    uploads: list[Upload] = []
    for device in range(4):
        learner, edge = case.learner(device), EdgeAggregator()
        uploads += learner.join(case.offline())
        for upload in learner.pending():
            learner.adopt(edge.merge(upload))
        for _ in range(15):
            choice = learner.select(case.context())
            latencies = Latencies(*(case.milliseconds() for _ in SEGMENTS))
            for upload in learner.observe(choice, latencies):
                uploads.append(upload)
                learner.adopt(edge.merge(upload))
    return uploads


def counts(learner: DeviceLearner) -> dict[str, int]:
    """How many observations each part's buffer holds."""
    return {record.key.part: record.local.count for record in learner.records()}
