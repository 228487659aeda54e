"""The shipped tables: totals, points, and what crosses where (PAPER-NOTES section 1)."""

from __future__ import annotations

import numpy as np
import pytest

from cans.errors import InputError
from cans.simulation.worlds.backbones import MODELS, load_document, load_table


@pytest.mark.parametrize(
    ("model", "points", "gmacs"),
    [("vgg16", 23, 15.470), ("resnet50", 20, 4.089), ("vit_b16", 15, 17.564)],
)
def test_totals_and_points(model, points, gmacs) -> None:
    document = load_document(model)
    assert len(document["points"]) == points
    assert round(document["total_macs"] / 1e9, 3) == gmacs
    assert document["provenance"]


@pytest.mark.parametrize("model", MODELS)
def test_front_and_back_add_up_at_every_point(model) -> None:
    document = load_document(model)
    first, last = document["points"][0], document["points"][-1]
    for point in document["points"]:
        for kind in ("conv", "linear", "attention"):
            whole = last["front"]["macs"][kind]
            assert point["front"]["macs"][kind] + point["back"]["macs"][kind] == whole
    work = sum(last["front"]["macs"][kind] for kind in ("conv", "linear", "attention"))
    assert work == document["total_macs"]
    assert first["bytes"] == 4 * 3 * 224 * 224
    assert last["bytes"] == 0
    assert not any(first["front"]["macs"].values())
    assert not any(last["back"]["macs"].values())


@pytest.mark.parametrize(
    ("model", "index", "elements"),
    [("vgg16", 1, 3_211_264), ("vgg16", 18, 25_088), ("vgg16", 19, 4_096),
     ("resnet50", 1, 200_704), ("resnet50", 2, 802_816), ("resnet50", 18, 2_048),
     ("vit_b16", 2, 151_296), ("vit_b16", 13, 151_296)],
)  # fmt: skip
def test_what_crosses(model, index, elements) -> None:
    assert load_document(model)["points"][index]["bytes"] == 4 * elements


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("features", ["mac3", "rich"])
def test_features_are_scaled_and_end_in_zero(model, features) -> None:
    _, table = load_table(model, features)
    for segment in (table.front, table.link, table.server):
        largest = segment.max(axis=0)
        assert np.all((largest == 1.0) | (largest == 0.0))
    assert not table.front[0].any()
    assert not table.link[-1].any()
    assert not table.server[-1].any()


def test_an_unknown_model_lists_the_known() -> None:
    with pytest.raises(InputError, match="vgg16, resnet50, vit_b16"):
        load_document("alexnet")
