"""Laws of sharing: nothing is lost or counted twice, whatever messages and processes go through."""

from __future__ import annotations

import numpy as np

from cans.learning.choice import Latencies
from cans.learning.edge import PoolContents
from cans.learning.laws.chaos import Chaos, everything
from cans.learning.laws.tiny_fleet import Case, TinyFleet
from cans.learning.messages import PoolKey, Upload
from cans.learning.table import SEGMENTS


def conserves_every_observation(case: Case) -> None:
    """pools + buffers + retired = offline + every observation, after every step of a chaotic run:
    counts exactly, sums to 1e-9. (A physical policy, or a watched pool, weighs observations by how
    noise grows and by how far off they are: there the counts are conserved.)"""
    chaos = Chaos(case)
    for _ in range(120):
        chaos.step()
        accounted = chaos.accounted()
        for key, observed in chaos.observed.items():
            assert accounted[key].count == observed.count, f"{key} lost or gained observations"
            if case.plain:
                assert accounted[key].equals(observed), f"{key} has other sums"
        assert all(s.count == 0 for key, s in accounted.items() if key not in chaos.observed)


def merges_commute(case: Case) -> None:
    """The same uploads in any order make the same pools. (A watched pool weighs an upload by what
    it knew before, and may start anew at another moment: there the counts are the same.)"""
    uploads = _some_uploads(case)
    one, other = case.edge(), case.edge()
    for edge, order in ((one, uploads), (other, case.shuffled(uploads))):
        for upload in order:
            edge.merge(upload)
    assert one.pools.keys() == other.pools.keys()
    for key, pool in one.pools.items():
        ours, theirs = everything(pool), everything(other.pools[key])
        assert ours.count == theirs.count
        assert case.policy.part(key.part).watched or ours.equals(theirs)


def repeats_change_nothing(case: Case) -> None:
    """An upload merged again, or a download adopted again, changes nothing at all."""
    uploads = _some_uploads(case)
    edge = case.edge()
    answers = [edge.merge(upload) for upload in uploads]
    before: dict[PoolKey, PoolContents] = dict(edge.pools)
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
    edge, learner = case.edge(), case.learner()
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
    fleet = TinyFleet(case)
    fleet.play(40)
    learner = fleet.learners[0]
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
        learner, edge = case.learner(device), case.edge()
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
