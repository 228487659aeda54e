"""Worlds as TOML files, and the traces that come with the package."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_engine import assert_same
from typer.testing import CliRunner

from cans import World, cli, simulate
from cans.errors import InputError
from cans.learning.policies import POLICIES, policy_named
from cans.simulation.run import Settings, play
from cans.simulation.sweep.grid import read_sweep
from cans.simulation.worlds.trace_file import shipped_traces

POINTS = """
exchange_ms = 2
[[points]]
name = "input"
bytes = 150_528
macs = 0
[[points]]
name = "cut"
bytes = 20_000
macs = 60e6
[[points]]
name = "end"
bytes = 0
macs = 300e6
"""
MACHINES = """
[devices.rpi5]
count = 3
front_ms = [0, 20, 90]
networks = ["wifi"]
[devices.nano]
gmacs = 20
[networks.wifi]
mbps = 40
[networks.lte]
mbps = 10
[server]
ms = [8, 5, 0]
[noise]
kind = "lognormal"
level = 0.05
"""
CHANGES = """
[[changes]]
from_round = 100
until_round = 200
network = "wifi"
link = 10
[[changes]]
from_round = 150
device = "nano"
front = 3
"""
GOOD = POINTS + MACHINES + CHANGES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my-world.toml"
    path.write_text(GOOD)
    return path


def test_a_world_as_described(file: Path) -> None:
    world = World.from_toml(file)
    assert (world.name, world.devices, world.types) == ("my-world", 4, ("rpi5", "nano"))
    assert [world.networks[each] for each in world.network_of] == ["wifi"] * 4
    front, link, server = world.segments_ms(3)
    np.testing.assert_allclose(front, [0, 3, 15])  # 20 GMAC/s
    np.testing.assert_allclose(link, [2 + 150_528 * 8 / 40e3, 2 + 20_000 * 8 / 40e3, 0])
    assert server.tolist() == [8, 5, 0]
    np.testing.assert_allclose(world.probe_ms[0], [8192 * 8 / 40e3, 2])
    assert (world.noise, world.noise_level) == ("lognormal", 0.05)
    more = World.from_toml(file, devices=20)
    assert np.bincount(more.type_of).tolist() == [15, 5]
    assert set(more.network_of[more.type_of == 1]) == {0, 1}  # nano: all networks in turn
    assert set(more.network_of[more.type_of == 0]) == {0}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("engine", ["reference", "fast"])
def test_its_changes_move_what_is_measured(engine: str, file: Path) -> None:
    what = {"policy": "offload", "world": str(file), "rounds": 300, "seeds": 1, "engine": engine}
    record = simulate(**what).runs[0].record  # type: ignore[arg-type]
    before, slow, after = (record.latency_ms[a : a + 100].mean() for a in (0, 100, 200))
    assert slow > 5 * before
    assert after == pytest.approx(before, rel=0.05)
    np.testing.assert_allclose(record.latency_ms, record.expected_ms, rtol=0.3)
    local = simulate(**what | {"policy": "local"}).runs[0].record  # type: ignore[arg-type]
    nano = local.expected_ms[local.active == 3]
    assert set(np.round(nano, 9)) == {15.0, 45.0}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("policy", POLICIES)
def test_engines_agree_pick_by_pick(policy: str, file: Path) -> None:
    what = Settings(policy=policy, world=World.from_toml(file, devices=7), rounds=300)
    world = what.make_world()
    fast, slow = (play(what, engine, 5, world) for engine in ("fast", "reference"))
    assert_same(fast, slow, 0.05 if policy_named(policy).physical else 1e-5)


def test_a_model_by_name_and_speeds(tmp_path: Path) -> None:
    path = tmp_path / "backbone.toml"
    path.write_text(
        'model = "mobilenet_v2"\n[devices.pi]\ngmacs = 3\n[networks.wifi]\nmbps = 40\n'
        "[server]\ngmacs = 30"
    )
    world = World.from_toml(path)
    front, _, server = world.segments_ms(0)
    macs = 300_774_272
    np.testing.assert_allclose([front[-1], server[0]], [macs / 3e6, macs / 30e6])
    np.testing.assert_allclose(front / front[-1] + server / server[0], 1.0)
    assert world.table.model == "mobilenet_v2"
    assert (world.noise, world.noise_level, world.devices) == ("lognormal", 0.1, 1)


def test_from_the_command_line_in_processes_too(file: Path) -> None:
    words = ["simulate", "--world", str(file), "--rounds", "40", "--seeds", "2", "--engine",
             "reference", "--json"]  # fmt: skip
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.exception
    said = json.loads(done.stdout)
    assert [said[name] for name in ("world", "model", "devices")] == ["my-world", "my-world", 4]
    done = CliRunner().invoke(cli.app, [*words, "--devices", "9"])
    assert json.loads(done.stdout)["devices"] == 9
    here = simulate(world=str(file), rounds=40, seeds=2, engine="reference")
    assert [run.regret_ms for run in here.runs] == [run["regret_ms"] for run in said["runs"]]


def test_a_trace_beside_the_file_or_a_shipped_one_with_changes(tmp_path: Path) -> None:
    path = tmp_path / "moving.toml"
    path.write_text('trace = "mobilenet_v2"\n[[changes]]\nfrom_round = 20\nserver = 8')
    run = simulate(policy="offload", world=str(path), rounds=40, seeds=1, engine="reference")
    still = simulate(policy="offload", world="trace", trace="mobilenet_v2", rounds=40, seeds=1,
                     engine="reference")  # fmt: skip
    one, other = (each.runs[0].record.latency_ms for each in (run, still))
    np.testing.assert_array_equal(one[:20], other[:20])
    assert (one[20:] > other[20:]).all()
    path.write_text('trace = "none.csv"')
    with pytest.raises(InputError, match=rf"{tmp_path}/none.csv.*shipped: mobilenet_v2"):
        World.from_toml(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("mbps = 40", "mpbs = 40", "[networks.wifi]: unknown setting 'mpbs'; choose one of: mbps"),
        ("mbps = 40", "mbps = -1", "[networks.wifi]: mbps must be a positive number"),
        ("mbps = 40", "mbps = '40'", "[networks.wifi]: mbps must be a number, not '40'"),
        ("mbps = 40", "", "[networks.wifi]: needs 'mbps'"),
        ("front_ms = [0, 20, 90]", "front_ms = [0, 20]", "[devices.rpi5]: front_ms must be 3"),
        ("front_ms = [0, 20, 90]", "front_ms = [1, 20, 90]", "front_ms must be 0 at the first"),
        ("front_ms = [0, 20, 90]", "", "[devices.rpi5]: needs one of: front_ms (a list"),
        ("gmacs = 20", "gmacs = 0", "[devices.nano]: gmacs must be a positive number"),
        ("gmacs = 20", "gmacs = 20\ncount = 0", "[devices.nano]: count must be at least 1"),
        ("ms = [8, 5, 0]", "ms = [8, 5, 1]", "[server]: ms must be 0 at the last point"),
        ('networks = ["wifi"]', 'networks = ["wlan"]', "[devices.rpi5]: unknown network 'wlan'"),
        ('network = "wifi"', 'network = "wlan"', "[[changes]] 1: unknown network 'wlan'"),
        ('device = "nano"', 'device = "tx2"', "[[changes]] 2: unknown device 'tx2'"),
        ("until_round = 200", "until_round = 1", "[[changes]] 1: until_round must be later"),
        ("front = 3", "front = 0", "[[changes]] 2: front must be a positive factor"),
        ("bytes = 0", "bytes = 9", "[[points]] 3: bytes must be 0: the last is local"),
        ("bytes = 20_000", "bytes = 0", "[[points]] 2: bytes must be at least 1"),
        ("bytes = 20_000", "bytes = 2.5", "[[points]] 2: bytes must be a whole number, not 2.5"),
        ("macs = 0", "macs = 1", "[[points]] 1: macs must be 0: it sends the raw input"),
        ("macs = 60e6", "macs = 600e6", "[[points]]: macs must not fall"),
        ('kind = "lognormal"', 'kind = "loud"', "[noise]: unknown kind 'loud'; choose one of"),
        ("exchange_ms = 2", "exchange_ms = nan", "exchange_ms must be a number"),
        ("exchange_ms = 2", 'model = "vgg16"', "needs one of: model, [[points]], trace"),
        ("exchange_ms = 2", "devices = 3", "Cannot"),
        ("[networks.lte]", "[networks.wifi]", "Cannot declare"),
        (MACHINES, "", "needs [devices.NAME], one for each type of device"),
        (POINTS, 'trace = "a.csv"', "devices and trace exclude each other"),
        (POINTS, 'model = "no-such-model"', "no-such-model"),
    ],
)
def test_what_is_wrong_is_one_line(old: str, new: str, says: str, file: Path) -> None:
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        World.from_toml(file)
    assert str(error.value).startswith(f"{file}: "), str(error.value)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


def test_a_missing_file_and_a_sweep_say_so(tmp_path: Path, file: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read nowhere.toml: No such file"):
        simulate(world="nowhere.toml")
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(f'world = "{file}"')
    with pytest.raises(InputError, match="is a file: only `cans simulate` plays those"):
        read_sweep(sweep)


def test_periods_that_do_not_fit_are_refused(file: Path) -> None:
    world = World.from_toml(file)
    for wrong in ((), (1,), (0, 5, 5), (0, 10, 20)):
        with pytest.raises(ValueError, match="starts of world 'my-world'"):
            replace(world, starts=wrong)


@pytest.mark.parametrize("name", shipped_traces())
def test_shipped_traces_are_worlds(name: str) -> None:
    what = {"world": "trace", "trace": name, "devices": 4, "rounds": 60, "seeds": 1}
    found = simulate(policy="cans", engine="reference", **what)  # type: ignore[arg-type]
    assert found.to_dict()["model"] == name
    world = found.settings.make_world()
    assert len(world.types) >= 3
    assert world.sample_count.min() >= 4
    assert name in CliRunner().invoke(cli.app, ["worlds"]).stdout


def test_a_shipped_trace_in_a_sweep(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('world = "trace"\ntrace = "mobilenet_v2"\nrounds = 10')
    assert {cell.study.settings.model for cell in read_sweep(sweep).cells} == {"mobilenet_v2"}
