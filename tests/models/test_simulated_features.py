"""The simulator's features of a backbone are those of its graph."""

import numpy as np
import pytest

from cans.models import PartitionTable
from cans.simulation.worlds.backbones import MODELS, load_table


@pytest.mark.parametrize("codecs", [("float32",), ("float32", "float16", "uint8")])
@pytest.mark.parametrize("features", ["mac3", "rich"])
@pytest.mark.parametrize("model", MODELS)
def test_simulated_features_are_those_of_the_graph(model, features, codecs) -> None:
    simulated = load_table(model, features, codecs)[1]
    counted = PartitionTable.from_onnx(model, features=features, codecs=codecs)
    assert simulated.points == counted.points
    assert simulated.point_of == counted.point_of
    assert simulated.codec_of == counted.codec_of
    assert simulated.names == counted.names
    for segment in ("front", "link", "server"):
        ours, theirs = getattr(simulated, segment), getattr(counted, segment)
        # a codec's header is a few bytes, and its scales eight per channel
        np.testing.assert_allclose(ours, theirs, atol=1e-5 if len(codecs) == 1 else 0.03)
