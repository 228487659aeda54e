"""A device that resumes from its records sees and owes what it saw and owed before."""

import numpy as np
import pytest

from cans.learning import Context, DeviceLearner, EdgeAggregator, Latencies, policy_named
from cans.live.wire import learned
from cans.simulation.worlds.named import make_world

TABLE = make_world("layered", "resnet50", 3).table


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw", "linucb"])
def test_resuming_changes_nothing(policy) -> None:
    edge = EdgeAggregator(policy_named(policy))
    learner = DeviceLearner(TABLE, policy_named(policy))
    for download in edge.join(learner.join([(5, 3.0), (12, 8.0)])):
        learner.adopt(download)
    for t in range(60):
        choice = learner.select(Context())
        latencies = Latencies(float(choice.point), 5.0 + t % 3, 2.0)
        uploads = learner.observe(choice, latencies, float(t))
        if t < 50:  # the last ones are still on their way when it stops
            for upload in uploads:
                learner.adopt(edge.merge(upload, float(t)))

    kept = [learned.record_in(learned.record_out(record)) for record in learner.records()]
    resumed = DeviceLearner(TABLE, policy_named(policy))
    resumed.restore(kept)

    for one in (learner, resumed):
        one.select(Context())
    np.testing.assert_allclose(resumed.predictions()[0], learner.predictions()[0], rtol=1e-6)
    assert [
        (upload.key, upload.epoch, upload.sequence, upload.statistics.count)
        for upload in resumed.pending()
    ] == [
        (upload.key, upload.epoch, upload.sequence, upload.statistics.count)
        for upload in learner.pending()
    ]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw", "linucb"])
def test_a_latency_that_is_no_number_is_refused_whole(policy, value) -> None:
    learner = DeviceLearner(TABLE, policy_named(policy))
    learner.join()
    before = [record.local.count for record in learner.records()]
    with pytest.raises(ValueError, match="finite"):
        learner.observe(5, Latencies(3.0, 2.0, value))
    assert [record.local.count for record in learner.records()] == before
