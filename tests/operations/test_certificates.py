"""`cans certs` makes what `cans serve` and `cans device` take."""

from __future__ import annotations

import json
import stat

import pytest
from typer.testing import CliRunner

import cans
from cans import cli
from cans.errors import InputError, Unreachable
from cans.live.wire.tls import ClientTls, ServerTls
from cans.operations.certificates import Authority
from tests.live.running import running
from tests.live.toy import example, toy


def test_a_device_joins_by_the_certificates_of_the_folder(tmp_path) -> None:
    folder = tmp_path / "certs"
    done = CliRunner().invoke(
        cli.app,
        ["certs", str(folder), "--server", "localhost", "--server", "127.0.0.1",
         "--device", "camera-1", "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert [each["name"] for each in json.loads(done.stdout)["files"]] == [
        "ca", "server", "camera-1",
    ]  # fmt: skip
    for name in ("ca", "server", "camera-1"):
        assert stat.S_IMODE((folder / f"{name}.key").stat().st_mode) == 0o600
    serving = ServerTls(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    mine = ClientTls(folder / "ca.pem", folder / "camera-1.pem", folder / "camera-1.key")
    with (
        running(toy(), tls=serving) as server,
        cans.Device(
            server.address, toy(), tls=mine, state=tmp_path / "a", name="camera-1"
        ) as device,
    ):
        device.infer(example())
        assert device.joined
    stranger = Authority(tmp_path / "other").issue("camera-1", [], 30)
    theirs = ClientTls(folder / "ca.pem", stranger.certificate, stranger.key)
    with (
        running(toy(), tls=serving) as server,
        cans.Device(server.address, toy(), tls=theirs, state=tmp_path / "b",
                    connect_seconds=1.0) as device,
    ):  # fmt: skip
        assert not device.joined


def test_a_second_run_adds_devices_and_keeps_the_rest(tmp_path) -> None:
    first = Authority(tmp_path)
    server = first.issue("server", ["edge-box"], 30).certificate.read_bytes()
    second = Authority(tmp_path)
    assert not second.files.new
    assert not second.issue("server", ["elsewhere"], 30).new
    assert (tmp_path / "server.pem").read_bytes() == server
    assert second.issue("camera-2", [], 30).new


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--device", "../up"], "cannot be called"),
        (["--device", "ca"], "cannot be called"),
        (["--server", "two words"], "neither a host name nor an address"),
    ],
)
def test_bad_names_are_refused(tmp_path, words, reason) -> None:
    done = CliRunner().invoke(cli.app, ["certs", str(tmp_path), *words])
    assert isinstance(done.exception, InputError)
    assert reason in str(done.exception)


def test_half_an_authority_is_not_written_over(tmp_path) -> None:
    Authority(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(InputError, match=r"only one of ca\.pem"):
        Authority(tmp_path)
    (tmp_path / "ca.key").write_text("no key")
    with pytest.raises(InputError, match="cannot use"):
        Authority(tmp_path)


def test_a_server_under_another_name_is_not_trusted(tmp_path) -> None:
    issued = Authority(tmp_path).issue("server", ["edge-box"], 30)
    with running(toy(), tls=ServerTls(issued.certificate, issued.key)) as server:
        from cans.live.wire.link import Link

        link = Link(server.address, tls=ClientTls(tmp_path / "ca.pem"))
        with pytest.raises(Unreachable):
            link.probe(16, 2.0)
        link.close()
