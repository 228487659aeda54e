"""The simulator's features of a backbone are those of its graph."""

import numpy as np
import pytest

from cans.models import PartitionTable
from cans.simulation.tables import MODELS, load_table


@pytest.mark.parametrize("features", ["mac3", "rich"])
@pytest.mark.parametrize("model", MODELS)
def test_simulated_features_are_those_of_the_graph(model, features) -> None:
    simulated = load_table(model, features)[1]
    counted = PartitionTable.from_onnx(model, features=features)
    assert simulated.points == counted.points
    for segment in ("front", "link", "server"):
        ours, theirs = getattr(simulated, segment), getattr(counted, segment)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)  # a codec's header is a few bytes
