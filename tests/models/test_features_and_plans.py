"""Feature sets, the learner's table, and the planners against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_networks import node, save, weight

import cans
from cans.errors import InputError
from cans.models import FEATURE_SETS, ImageSpec, feature_columns, find_points, load
from cans.models.tools.planning import Speeds, dads, neurosurgeon

BACKBONES = ["vgg16", "resnet50", "vit_b16"]
speed = st.floats(0.1, 1e4)


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("features", FEATURE_SETS)
def test_columns_are_scaled_and_the_ends_are_empty(name: str, features: str) -> None:
    points = find_points(load(name))
    columns = feature_columns(points, features)
    for segment in ("front", "link", "server"):
        names, matrix = columns[segment]
        assert matrix.shape == (len(points), len(names))
        assert set(matrix.max(axis=0)) <= {0.0, 1.0}
        assert (matrix >= 0).all()
    assert not columns["front"][1][0].any()
    assert not columns["link"][1][-1].any()
    assert not columns["server"][1][-1].any()


def test_the_sizes_of_the_feature_sets() -> None:
    def widths(name: str, features: str) -> list[int]:
        columns = feature_columns(find_points(load(name)), features)
        return [len(columns[each][0]) for each in ("front", "link", "server")]

    assert widths("vgg16", "mac3") == [1, 1, 1]
    assert widths("vgg16", "ops13") == [6, 1, 6]
    assert widths("vit_b16", "ops13") == [7, 1, 7]  # and the patch embedding's convolution
    assert widths("resnet50", "rich") == [6, 2, 6]
    vit = feature_columns(find_points(load("vit_b16")), "ops13")["front"][1]
    assert vit[1].any()  # not all zero at the patch embedding


def test_an_unknown_feature_set_is_refused() -> None:
    with pytest.raises(InputError, match="mac3, ops13, rich"):
        feature_columns(find_points(load("vgg16")), "all")


def test_the_learners_table_from_a_model() -> None:
    table = cans.PartitionTable.from_onnx("resnet50")
    assert table.choices == 20
    assert table.points[0] == "input"
    assert table.digest == load("resnet50").digest
    image = ImageSpec.parse("0.5/0.5")
    wide = cans.PartitionTable.from_onnx(
        "resnet50", codecs=["float32", "uint8", "jpeg"], image=image
    )
    assert wide.choices == 19 * 2 + 1 + 1
    assert wide.codec_of[:3] == ("float32", "uint8", "jpeg")
    assert wide.point_of[-1] == 19
    bytes_column = wide.link[:, wide.names["link"].index("bytes")]
    assert bytes_column[1] < bytes_column[0] / 3.5


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "mobilenet_v2"])
@given(speed, speed, speed)
@settings(max_examples=15, deadline=None)
def test_dads_is_never_worse_and_equal_on_a_chain(
    name: str, device: float, server: float, mbps: float
) -> None:
    model = load(name)
    speeds = Speeds(device, server, mbps)
    cut = dads(model, speeds)["latency_ms"]
    point = neurosurgeon(find_points(model), speeds)["latency_ms"]
    assert cut <= point * (1 + 1e-9)
    if name == "vgg16":
        assert cut == pytest.approx(point, rel=1e-9)


def test_dads_pays_a_tensor_once_and_finds_cuts_of_several(tmp_path: Path) -> None:
    """Two towers joined late: the best cut crosses one tensor of each, which no point does."""
    nodes, extra = [], []
    for tower in "ab":
        nodes += [
            node("Conv", [tower, f"{tower}1.w"], f"{tower}1", strides=[4, 4]),
            node("Conv", [f"{tower}1", f"{tower}2.w"], f"{tower}2", pads=[1, 1, 1, 1]),
            node("Conv", [f"{tower}1", f"{tower}2.w"], f"{tower}3", pads=[1, 1, 1, 1]),
            node("Add", [f"{tower}2", f"{tower}3"], f"{tower}4"),
        ]
        extra += [weight(f"{tower}1.w", 4, 4, 4, 4), weight(f"{tower}2.w", 512, 4, 3, 3)]
    nodes += [node("Add", ["a4", "b4"], "out")]
    inputs = {"a": [1, 4, 64, 64], "b": [1, 4, 64, 64]}
    model = load(save(tmp_path / "m.onnx", nodes, inputs, ["out"], extra))
    plan = dads(model, Speeds(0.1, 1000, 10))
    assert sorted(plan["crossing"]) == ["a1", "b1"]  # each read twice, each paid once
    assert plan["bytes"] == 2 * 4 * 16 * 16 * 4
    assert plan["latency_ms"] == pytest.approx(
        plan["front_ms"] + plan["back_ms"] + plan["bytes"] * 8 / 10 / 1e3
    )


def test_the_best_plan_moves_from_server_to_device_as_the_link_slows() -> None:
    points = find_points(load("vgg16"))
    order = [neurosurgeon(points, Speeds(60, 1e4, mbps))["index"] for mbps in (1000, 100, 10, 0.1)]
    assert order == sorted(order)
    assert order[0] == 0
    assert order[-1] == len(points) - 1
    sent = neurosurgeon(points, Speeds(60, 1e4, 100), "uint8")
    assert sent["bytes"] < 602_112 / 3.5
    assert np.isfinite(sent["latency_ms"])
