"""An experiment's TOML: the shipped ones are valid, a wrong one is one line and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cans.cli import app
from cans.errors import InputError
from cans.testbed.run.experiment import Change, DeviceGroup, Experiment, Link, Outage, PolicyChoice
from cans.testbed.run.fleet import ProcessFleet
from cans.testbed.run.layout import seats
from cans.testbed.run.network import Loopback
from cans.testbed.run.reading import read_experiment, shipped

GOOD = """
name = "good"
[[devices]]
type = "rpi5"
count = 2
slowdown = 3
[[links]]
network = "wifi"
mbps = 10
[[policies]]
name = "cans"
"""


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    experiment = read_experiment(str(path))
    assert experiment.devices == (DeviceGroup("rpi5", 2, 3.0),)
    assert [seat.name for seat in seats(experiment)] == ["rpi5-1", "rpi5-2"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("slowdown = 3", "slowdown = 0.5", "slowdown of rpi5"),
        ("slowdown = 3", "slowdown = 'much'", "slowdown must be a number"),
        ("slowdown = 3", "slowdonw = 3", "[[devices]] 1: unknown setting 'slowdonw'"),
        ("mbps = 10", "", "needs 'mbps'"),
        ("mbps = 10", "mbps = -1", "mbps of wifi"),
        ('network = "wifi"', 'network = "lte"', "no [[links]] named 'wifi'"),
        ('name = "cans"', 'name = "nonsense"', "unknown policy 'nonsense'"),
        ('name = "cans"', 'name = "oracle"', "simulation only"),
        ('name = "good"', 'name = "good"\nmode = "fast"', "mode must be one of"),
        ('name = "good"', 'name = "good"\nrounds = 0', "rounds must be"),
        ('name = "good"', 'name = "good', "Illegal character"),
        ("[[devices]]", "[devices]", "devices must be a list"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError) as error:
        read_experiment(str(path))
    assert says in str(error.value)
    assert "wrong.toml" in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


def test_a_missing_file_names_what_is_shipped() -> None:
    result = CliRunner().invoke(app, ["testbed", "run", "nowhere.toml"])
    assert isinstance(result.exception, InputError)
    assert "fleet" in str(result.exception)


@pytest.mark.parametrize("name", shipped())
def test_shipped_experiments_are_valid_and_listed(name: str) -> None:
    assert read_experiment(name).name == name
    assert name in CliRunner().invoke(app, ["testbed", "list"]).stdout


def test_links_and_servers_change_with_the_rounds() -> None:
    experiment = Experiment(
        "moving",
        (DeviceGroup("rpi5"),),
        (Link("wifi", 40.0),),
        (PolicyChoice("cans"),),
        changes=(Change(20, "wifi", 5.0), Change(10, "wifi", 10.0)),
        outages=(Outage(5, 2),),
    )
    assert experiment.phases() == (0, 10, 20)
    assert [experiment.rates(n)["wifi"] for n in (0, 9, 10, 19, 20)] == [40, 40, 10, 10, 5]
    assert [n for n in range(10) if experiment.server_is_down(n)] == [5, 6]


def test_a_policy_may_be_run_without_telling_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cans.testbed.run.fleet.ServerProcess", lambda *_: None)
    typed, untyped = read_experiment("fleet-types").policies
    assert (typed.label, untyped.label) == ("cans", "cans (no types)")
    experiment = read_experiment("fleet-types")
    words = {}
    for policy in (typed, untyped):
        folder = tmp_path / policy.label
        made = ProcessFleet(experiment, "m", policy, seats(experiment), Loopback({}), folder)
        words[policy.label] = made._device_words(made.seats[0])
    assert words["cans"][words["cans"].index("--type") + 1] == "orin-nano"
    assert "--type" not in words["cans (no types)"]
