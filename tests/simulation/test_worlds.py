"""Worlds are what the notes say, and episodes have the statistics they claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cans.errors import InputError
from cans.learning.grouping import SPAN
from cans.learning.policies import policy_named
from cans.learning.table import PartitionTable
from cans.simulation.run import simulate
from cans.simulation.worlds.bent import BENT
from cans.simulation.worlds.groups import grouped
from cans.simulation.worlds.layered import TIERS, fleet
from cans.simulation.worlds.named import WORLDS, make_world
from cans.simulation.worlds.world import Noise, World


def test_the_papers_fleet_is_8_10_7() -> None:
    assert np.bincount(fleet(25)).tolist() == [8, 10, 7]


@pytest.mark.parametrize("devices", [1, 2, 3, 10, 50, 999, 1_000_000])
def test_a_fleet_has_its_size_and_its_shares(devices) -> None:
    counts = np.bincount(fleet(devices), minlength=3)
    assert counts.sum() == devices
    assert np.all(np.abs(counts - devices * np.array([0.3, 0.4, 0.3])) < 1)


def test_in_the_literal_world_local_is_best_everywhere() -> None:
    for model in ("vgg16", "resnet50", "vit_b16"):
        world = make_world("literal", model, 25)
        for device in range(25):
            total = sum(world.segments_ms(device))
            assert total.argmin() == world.table.local
    vgg = make_world("literal", "vgg16", 25)
    local = [round(float(vgg.front_ms[k, -1]), 2) for k in range(3)]
    assert local == [0.77, 1.47, 206.27]
    assert round(float(vgg.link_ms[0, 0])) == 482


@pytest.mark.parametrize("model", ["vgg16", "resnet50", "vit_b16"])
def test_in_the_papers_world_a_pi_offloads_and_nobody_cuts_inside(model) -> None:
    world = make_world("paper", model, 25)
    for device in range(25):
        best = int(sum(world.segments_ms(device)).argmin())
        expected = 0 if world.types[world.type_of[device]] == "rpi5" else world.table.local
        assert best == expected


def test_in_the_layered_world_an_interior_cut_is_best_for_someone() -> None:
    world = make_world("layered", "vgg16", 25)
    orin = int(sum(world.segments_ms(0)).argmin())
    assert world.table.points[orin] == "pool5"


@pytest.mark.parametrize(
    "name", [each for each in WORLDS if each not in {"misspecified", *BENT} - {"accelerator"}]
)
@pytest.mark.parametrize("model", ["vgg16", "resnet50", "vit_b16"])
def test_latencies_are_linear_in_the_features(name, model) -> None:
    world = make_world(name, model, 25)
    for device in (0, 12, 24):
        for segment, ms in zip(("front", "link", "server"), world.segments_ms(device), strict=True):
            rows = getattr(world.table, segment)
            theta = np.linalg.lstsq(rows, ms, rcond=None)[0]
            np.testing.assert_allclose(rows @ theta, ms, rtol=1e-6, atol=1e-6 * ms.max())


def test_gaussian_noise_is_5_ms_on_each_half() -> None:
    episode = make_world("paper", "vgg16", 25).episode(40_000, 1)
    front, back = episode.shift[:, 0], episode.shift[:, 1] + episode.shift[:, 2]
    for half in (front, back):
        assert abs(half.std() - 5.0) < 0.1
        assert abs(half.mean()) < 0.1
    assert np.all(episode.factor == 1.0)


def test_lognormal_noise_has_mean_one_and_10_percent() -> None:
    episode = make_world("layered", "vgg16", 25).episode(40_000, 1)
    assert np.all(np.abs(episode.factor.mean(axis=0) - 1.0) < 0.003)
    assert np.all(np.abs(episode.factor.std(axis=0) - 0.1) < 0.003)
    assert np.all(episode.shift == 0.0)


def test_truncated_noise_is_never_negative() -> None:
    world = make_world("paper", "vgg16", 25, noise="truncated")
    episode = world.episode(100, 1)
    assert episode.clip
    assert episode.offline_ms.min() == 0.0


def test_offline_runs_are_partial_local_runs() -> None:
    world = make_world("paper", "vgg16", 25)
    episode = world.episode(10, 1, offline_runs=400)
    assert episode.offline_choice.min() == 1
    assert episode.offline_choice.max() == world.table.local
    expected = world.front_ms[world.type_of[:, None], episode.offline_choice]
    assert abs((episode.offline_ms - expected).std() - 5.0) < 0.1


def test_gamma_by_device_is_drawn_once() -> None:
    episode = make_world("paper", "vgg16", 25, gamma=0.3).episode(5000, 1)
    speeds = [set(1 / episode.scale[episode.active == d, 0]) for d in range(25)]
    assert all(len(each) == 1 for each in speeds)
    drawn = np.array([each.pop() for each in speeds])
    assert drawn.min() >= 0.7
    assert drawn.max() <= 1.3
    assert len(set(drawn)) == 25


def test_gamma_by_round_is_drawn_every_round() -> None:
    world = make_world("paper", "vgg16", 25, gamma=0.3, gamma_mode="round")
    speed = 1 / world.episode(20_000, 1).scale[:, 0]
    assert len(set(speed)) == 20_000
    assert 0.7 <= speed.min() < speed.max() <= 1.3
    assert abs(speed.mean() - 1.0) < 0.01


def test_participation() -> None:
    uniform = make_world("paper", "vgg16", 10).episode(20_000, 1).active
    assert np.all(np.abs(np.bincount(uniform) / 2000 - 1) < 0.1)
    in_turn = make_world("paper", "vgg16", 10, participation="round-robin").episode(25, 1).active
    assert in_turn.tolist() == [*range(10), *range(10), *range(5)]


def test_the_same_seed_draws_the_same_episode() -> None:
    world = make_world("layered", "resnet50", 25, gamma=0.1)
    one, other, third = world.episode(50, 4), world.episode(50, 4), world.episode(50, 5)
    for name in ("active", "factor", "offline_ms", "uniform"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert not np.array_equal(one.factor, third.factor)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"front_ms": np.ones((3, 5))}, "front_ms"),
        ({"place_of": np.full(4, 3)}, "place_of"),
        ({"allowed": np.zeros((3, 23), dtype=np.bool_)}, "allowed"),
    ],
)
def test_a_world_that_does_not_fit_itself_is_refused(change, said) -> None:
    with pytest.raises(ValueError, match=said):
        replace(make_world("paper", "vgg16", 4), **change)


@pytest.mark.parametrize("model", ["vgg16", "resnet50", "vit_b16"])
def test_in_world_codecs_fewer_bits_send_less_and_cost_a_little_work(model) -> None:
    world = make_world("codecs", model, 3)
    table = world.table
    rows = {(table.points[p], c): n for n, (p, c) in enumerate(zip(table.point_of, table.codec_of,
                                                                  strict=True))}  # fmt: skip
    plain, small = rows["input", "float32"], rows["input", "uint8"]
    assert world.link_ms[0, small] == pytest.approx(world.link_ms[0, plain] / 4)
    assert world.front_ms[2, small] > world.front_ms[2, plain] == 0.0
    assert world.server_ms[0, small] > world.server_ms[0, plain]
    pi = sum(world.segments_ms(2))
    assert table.codec_of[int(pi.argmin())] == "uint8"


def test_in_world_unlabelled_nobody_has_a_type_and_in_mislabelled_some_have_a_wrong_one() -> None:
    true = make_world("layered", "vgg16", 25)
    none = make_world("unlabelled", "vgg16", 25)
    assert none.types == ("auto",)
    assert not none.type_of.any()
    wrong = make_world("mislabelled", "vgg16", 25)
    assert np.bincount(wrong.type_of).tolist() == np.bincount(true.type_of).tolist()
    assert 5 <= (wrong.type_of != true.type_of).sum() <= 13
    for world in (none, wrong):
        np.testing.assert_array_equal(world.front_ms[world.place_of], true.front_ms[true.place_of])


@pytest.mark.parametrize("name", ["unlabelled", "mislabelled"])
@pytest.mark.parametrize("model", ["vgg16", "vit_b16"])
def test_devices_fall_into_groups_of_their_speed_whatever_their_label(name, model) -> None:
    world = make_world(name, model, 25)
    episode = world.episode(200, 3)
    seen = grouped(world, episode)
    named = {"unlabelled": ("auto-",), "mislabelled": tuple(f"{each}/auto-" for each in TIERS)}
    assert all(each.startswith(named[name]) for each in seen.types)
    pi = list(TIERS).index("rpi5")
    for group in range(len(seen.types)):
        members = seen.type_of == group
        assert len(set(world.place_of[members] == pi)) == 1, "a Pi learns with Pis"
        assert episode.whole_ms[members].max() <= SPAN * episode.whole_ms[members].min()


def test_a_disturbed_run_does_not_decide_a_group() -> None:
    world = make_world("unlabelled", "vgg16", 25)
    whole = np.array([world.episode(1, seed).whole_ms for seed in range(200)])
    expected = world.front_ms[world.place_of, -1]
    below = (whole < expected).mean()
    assert 0.6 < below < 0.9  # the lower of two: three quarters of the time below the mean


@pytest.mark.parametrize("name", BENT)
@pytest.mark.parametrize("model", ["vgg16", "resnet50", "vit_b16"])
def test_in_a_bent_world_a_longer_prefix_takes_longer(name, model) -> None:
    world = make_world(name, model, 3)
    assert np.all(np.diff(world.front_ms, axis=1) >= 0)
    assert np.all(np.diff(world.server_ms, axis=1) <= 0)


def test_no_line_fits_a_bent_world() -> None:
    for name in ("bent-1", "bent-2", "bent-3", "slow-server", "heavy-tailed"):
        world = make_world(name, "resnet50", 3)
        rows, ms = world.table.front, world.front_ms[2]
        fitted = rows @ np.linalg.lstsq(rows, ms, rcond=None)[0]
        assert np.abs(fitted - ms).max() > 0.02 * ms.max()


def test_the_draws_of_a_bent_world_differ_and_stay() -> None:
    draws = [make_world(name, "vgg16", 3).front_ms for name in ("bent-1", "bent-2", "bent-3")]
    assert not np.allclose(draws[0], draws[1])
    assert not np.allclose(draws[1], draws[2])
    np.testing.assert_array_equal(draws[0], make_world("bent-1", "vgg16", 3).front_ms)


def test_an_accelerator_is_faster_in_one_class_of_work_and_slower_in_another() -> None:
    world = make_world("accelerator", "vit_b16", 3)
    front, server = world.front_ms, world.server_ms[0]
    assert np.all(front[:, 1] < server[0] - server[1]), "the convolution of the first point"
    assert np.all(front[:, -1] - front[:, 1] > server[1]), "everything behind it"


def test_heavy_tails_are_the_links_alone_and_have_mean_one() -> None:
    factor = make_world("heavy-tailed", "vgg16", 25).episode(400_000, 1).factor
    assert np.all(np.abs(factor.mean(axis=0) - 1.0) < 0.02)
    beyond_three = (factor > 3.0).mean(axis=0)
    assert beyond_three[0] == beyond_three[2] == 0.0
    assert 0.005 < beyond_three[1] < 0.02


# --- worlds of one's own -------------------------------------------------------------------------

OWN = PartitionTable(
    "mine", ["input", "cut", "end"],
    front=[[0], [1], [4]], link=[[8, 1], [1, 1], [0, 0]], server=[[4], [3], [0]],
)  # fmt: skip


def own_world(**rest) -> World:
    return World.of(
        OWN,
        devices=6,
        front_ms={"slow": [0.0, 20.0, 90.0], "fast": [0.0, 6.0, 12.0]},
        link_ms={"wifi": [60.0, 10.0, 0.0], "cable": [5.0, 2.0, 0.0]},
        server_ms=[8.0, 5.0, 0.0],
        noise=Noise.LOGNORMAL,
        noise_level=0.05,
        **rest,
    )


def test_devices_of_a_described_world_take_types_and_networks_in_turn() -> None:
    world = own_world()
    places = [
        (world.types[world.type_of[d]], world.networks[world.network_of[d]]) for d in range(4)
    ]
    assert places == [("slow", "wifi"), ("fast", "wifi"), ("slow", "cable"), ("fast", "cable")]
    best = [int(sum(world.segments_ms(device)).argmin()) for device in range(4)]
    assert best == [1, 2, 0, 2]


def test_a_world_of_ones_own_is_simulated() -> None:
    what = {"rounds": 300, "seeds": 2, "engine": "reference"}
    found = simulate(policy="cans", world=own_world(name="mine"), **what)
    said = found.to_dict()
    assert (said["world"], said["model"], said["devices"]) == ("mine", "mine", 6)
    assert (
        found.mean_regret_ms
        < 0.1 * simulate(policy="random", world=own_world(), **what).mean_regret_ms
    )
    oracle = simulate(policy="oracle", world=own_world(drift=lambda *_: np.ones((300, 3))), **what)
    assert oracle.mean_regret_ms == 0.0


def test_a_world_of_ones_own_may_name_its_noise() -> None:
    assert replace(own_world(), noise="gaussian").noise is Noise.GAUSSIAN
    with pytest.raises(InputError, match="unknown noise 'pink'; choose one of: gaussian"):
        replace(own_world(), noise="pink")


def test_a_world_of_ones_own_has_its_devices() -> None:
    with pytest.raises(InputError, match="has its devices, 6 of them"):
        simulate(world=own_world(), devices=50, rounds=5, seeds=1)


def test_a_world_file_may_be_a_path(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('trace = "mobilenet_v2"')
    done = simulate(world=file, policy="local", rounds=5, seeds=1, engine="reference")
    assert done.settings.world_name == "own"


def test_what_a_world_lacks_is_said() -> None:
    times = {"front_ms": {"a": [0, 1, 2]}, "link_ms": {"w": [1, 1, 0]}, "server_ms": [2, 1, 0]}
    for wrong in (
        {"front_ms": {}},
        {"link_ms": {"w": [1.0, 0.0]}},
        {"server_ms": [1.0, -1.0, 0.0]},
        {"front_ms": {"a": [0.0, float("nan"), 1.0]}},
    ):
        with pytest.raises(InputError, match=r"at least a type|3 milliseconds, none negative"):
            World.of(OWN, **{"devices": 1, **times, **wrong})
    for devices in (0, 1_000_001):
        with pytest.raises(InputError, match="devices must be at"):
            World.of(OWN, **{**times, "devices": devices})
    with pytest.raises(InputError, match=r"server_ms must be at most 600,000 \(ten minutes\)"):
        World.of(OWN, **{"devices": 1, **times, "server_ms": [1e15, 1.0, 0.0]})
    with pytest.raises(InputError, match="exclude each other"):
        simulate(world=own_world(), trace=Path("a.csv"))


def test_nobody_lies_about_a_server_that_times_itself() -> None:
    world = make_world("adversary", "vgg16", 4)
    assert world.told_per_ms(policy_named("cans"))[3].tolist() == [5.0, 5.0, 1.0]
    assert world.told_per_ms(policy_named("fedlinucb-dw"))[3].tolist() == [5.0, 5.0, 5.0]
    assert (world.told_per_ms(policy_named("cans"))[:3] == 1.0).all()
