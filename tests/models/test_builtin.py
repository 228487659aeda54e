"""The built-in networks: the paper's points, exact counts, and the simulator's tables."""

from __future__ import annotations

import json

import pytest

from cans.models.onnx.loading import load
from cans.models.points.points import find_points
from cans.models.tools import backbone_tables

PAPER = {  # points, GMACs, crossing elements of some points (PAPER-NOTES section 1)
    "vgg16": (23, 15.470, {"conv1_1": 3_211_264, "pool5": 25_088, "fc6": 4_096, "end": 0}),
    "resnet50": (20, 4.089, {"stem": 200_704, "layer1.1": 802_816, "avgpool": 2_048, "fc": 0}),
    "vit_b16": (15, 17.564, {"embedding": 151_296, "block12": 151_296, "head": 0}),
}


@pytest.mark.parametrize("name", PAPER)
def test_points_and_macs_are_those_of_the_paper(name: str) -> None:
    count, gmacs, elements = PAPER[name]
    points = find_points(load(name))
    assert len(points) == count
    assert round(points[-1].front.total_macs / 1e9, 3) == gmacs
    sizes = {point.name: point.bytes // 4 for point in points}
    assert sizes["input"] == 3 * 224 * 224
    assert {each: sizes[each] for each in elements} == elements


@pytest.mark.parametrize("name", PAPER)
def test_the_halves_of_every_point_add_up(name: str) -> None:
    points = find_points(load(name))
    whole = points[-1].front
    for point in points:
        for each in whole.macs:
            assert point.front.macs[each] + point.back.macs[each] == whole.macs[each]
            assert point.front.ops[each] + point.back.ops[each] == whole.ops[each]
    assert points[0].front.weight_bytes == points[-1].back.weight_bytes == 0


@pytest.mark.parametrize("name", PAPER)
def test_on_smaller_pictures_they_have_the_same_points_and_less_work(name: str) -> None:
    usual, small = load(name), load(f"{name}-96")
    assert small.digest != usual.digest
    points = find_points(small)
    assert [each.name for each in points] == [each.name for each in find_points(usual)]
    share = points[-1].front.total_macs / find_points(usual)[-1].front.total_macs
    assert share == pytest.approx((96 / 224) ** 2, rel=0.1)


@pytest.mark.parametrize("name", backbone_tables.BACKBONES)
def test_the_simulators_table_is_what_is_counted_now(name: str) -> None:
    stored = json.loads((backbone_tables.folder() / f"{name}.json").read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(backbone_tables.table(name)))


def test_early_exits_are_outputs_of_the_front_end() -> None:
    points = {point.name: point for point in find_points(load("vgg16-exits"))}
    assert points["conv3_3"].outputs == ()
    assert points["pool3"].outputs == ("exit3",)
    assert points["pool5"].outputs == ("exit3", "exit4")
