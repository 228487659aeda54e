"""`cans status` and `cans explain` against a real server with a real device."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cans import cli
from cans.errors import InputError, Refused, Unreachable
from cans.live.device.hooked import HookedDevice
from cans.live.wire.tls import ServerTls
from cans.operations.certificates import Authority
from cans.operations.token_lines import add_token
from tests.live.running import running, terms
from tests.live.toy import example, toy


def run(*words: str):
    return CliRunner().invoke(cli.app, [*words])


def test_a_fleet_in_a_table_and_as_json(tmp_path) -> None:
    split = toy()
    with (
        running(split, terms=terms("cans")) as server,
        HookedDevice(server.address, split, "rpi5", name="[red]camera", network="lab",
                    state=tmp_path) as device,
    ):  # fmt: skip
        device.hooks.force = split.table.local
        for _ in range(3):
            device.infer(example())
        device.settle()
        done = run("status", "--server", server.address, "--json")
        assert done.exit_code == 0, done.exception
        found = json.loads(done.stdout)
        (row,) = found["devices"]
        assert (row["device"], row["type"], row["network"]) == ("[red]camera", "rpi5/auto-1", "lab")
        assert row["state"] == "local"
        assert row["inferences"] >= 1
        assert found["totals"]["devices"] == 1
        table = run("status", "--server", server.address, "--once").stdout
        assert "[red]camera" in table
        assert "all on the device" in table
        said = run("explain", "[red]camera", "--server", server.address).stdout
        assert "why: the testbed asked for it" in said
        document = json.loads(
            run("explain", "[red]camera", "--server", server.address, "--json").stdout
        )
        assert len(document["choices"]) == split.table.choices
        assert len(document["rounds"]) >= 1
        missing = run("explain", "nobody", "--server", server.address).exception
        assert isinstance(missing, Refused)
        assert "'nobody'" in str(missing)


def test_with_tls_and_tokens(tmp_path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("server", ["localhost", "127.0.0.1"], 30)
    tokens = tmp_path / "tokens.txt"
    token = add_token(tokens, "operator")
    tls = ServerTls(issued.certificate, issued.key)
    with running(toy(), tls=tls, tokens=tokens) as server:
        words = [
            "status",
            "--server",
            server.address,
            "--tls-ca",
            str(tmp_path / "ca.pem"),
            "--json",
        ]
        assert isinstance(run(*words).exception, Refused)
        done = run(*words, "--token", token)
        assert json.loads(done.stdout)["devices"] == []


def test_nobody_there() -> None:
    with running(toy()) as server:
        address = server.address
    found = run("status", "--server", address).exception
    assert isinstance(found, Unreachable)
    assert "\n" not in str(found)
    assert isinstance(run("status", "--server", "nowhere").exception, InputError)
    with running(toy()) as server:
        found = run("status", "--server", server.address, "--tls").exception
    assert isinstance(found, Unreachable)
    assert "does not speak TLS" in str(found)


@pytest.mark.parametrize("count", [3])
def test_a_long_fleet_is_cut_short(count) -> None:
    from cans.learning import DeviceIdentity
    from cans.live.server.fleet.happenings import Joined

    split = toy()
    with running(split) as server:
        for number in range(count):
            server.server.recorder.happenings.add(
                Joined(1.0, DeviceIdentity(f"d{number}"), split.digest)
            )
        done = run("status", "--server", server.address, "--most", "2", "--json")
        found = json.loads(done.stdout)
        assert len(found["devices"]) == 2
        assert found["left_out"] == count - 2
        assert "and 1 more" in run("status", "--server", server.address, "--most", "2").stdout
