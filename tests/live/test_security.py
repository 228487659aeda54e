"""Who may speak to a server, and what becomes of those who may not."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from cans.errors import InputError, Refused
from cans.live.device.device import Device
from cans.live.server.door.identity import TokenFile
from cans.live.server.server import ServerOptions
from cans.live.wire.tls import ClientTls, ServerTls, trouble
from tests.live.certificates import Authority
from tests.live.running import Running, running, terms
from tests.live.toy import example, toy


def test_token_files(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    digest = sha256(b"secret-b").hexdigest()
    path.write_text(f"a secret-a  # the first\n\nb sha256:{digest}\n* master\n")
    tokens = TokenFile(path)
    assert tokens.entry("secret-a").device == "a"
    assert tokens.entry("secret-b").device == "b"
    assert tokens.entry("master").device == "*"
    for bad in (None, "", "secret", digest):
        with pytest.raises(Refused):
            tokens.entry(bad)
    path.write_text("b other-secret\n")
    with pytest.raises(Refused):
        tokens.entry("secret-a")
    assert tokens.entry("other-secret").device == "b"
    path.write_text("one two three\n")
    with pytest.raises(Refused):
        tokens.entry("other-secret")
    path.unlink()
    with pytest.raises(Refused):
        tokens.entry("other-secret")
    with pytest.raises(InputError, match="cannot read"):
        TokenFile(path)
    path.write_text("nonsense")
    with pytest.raises(InputError, match="each line"):
        TokenFile(path)


def test_a_token_file_that_others_can_read_is_warned_about(tmp_path: Path, caplog) -> None:
    path = tmp_path / "tokens"
    path.write_text("a secret-a\n")
    path.chmod(0o600)
    TokenFile(path)
    assert caplog.messages == []
    path.chmod(0o644)
    TokenFile(path)
    assert len(caplog.messages) == 1
    assert "others on this machine can read" in caplog.messages[0]


def test_a_server_that_is_open_to_everyone_says_so_in_one_line(tmp_path: Path, caplog) -> None:
    tokens = tmp_path / "tokens"
    for listen, guarded, lines in (
        ("0.0.0.0:7070", None, 1), ("[::]:7070", None, 1), ("0.0.0.0:7070", tokens, 0),
        ("127.0.0.1:7070", None, 0), ("[::1]:7070", None, 0), ("localhost:7070", None, 0),
    ):  # fmt: skip
        caplog.clear()
        options = ServerOptions(terms(), listen, tokens=guarded)
        options.warn_if_open(strict=False)
        assert len(caplog.messages) == lines, listen
        if lines:
            with pytest.raises(InputError, match="everyone who reaches"):
                options.warn_if_open(strict=True)


def test_the_runtime_tells_nobody_what_it_does() -> None:
    program = "import cans, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "1"


def test_a_token_is_revoked_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("a good\nb other\n")
    with running(toy(), terms=terms("offload"), tokens=path) as server:
        for token in (None, "bad"):
            with pytest.raises(InputError, match="refuses this device"):
                Device(server.address, toy(), state=tmp_path / "x", name="a", token=token)
        with pytest.raises(InputError, match="belongs to"):
            Device(server.address, toy(), state=tmp_path / "x", name="a", token="other")
        with Device(server.address, toy(), state=tmp_path / "s", name="a", token="good") as device:
            device.infer(example())
            assert device.last is not None
            assert device.last.answered_by == server.address
            path.write_text("b other\n")
            for _ in range(5):
                device.infer(example())  # still answers, by itself
                assert device.last.answered_by == "device" or device.last.fallback
                device.settle()
            assert "revoked" in device.last.why + device.last.fallback


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ServerTls(*authority.issue("server"))
    with running(toy(), terms=terms("offload"), tls=tls) as server:
        trusting = ClientTls(authority.file)
        with Device(server.address, toy(), state=tmp_path / "a", tls=trusting) as device:
            device.infer(example())
            assert device.last is not None
            assert device.last.answered_by == server.address
        other = Authority(tmp_path, "other")
        for tls_ in (None, ClientTls(other.file)):
            with Device(
                server.address, toy(), state=tmp_path / "b", tls=tls_, connect_seconds=1
            ) as device:
                assert not device.joined
                device.infer(example())


def test_what_is_wrong_with_the_encryption_is_said(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with running(toy(), tls=ServerTls(*authority.issue("server"))) as server:
        assert "speaks TLS only" in trouble(server.address, None)
        assert "not accepted" in trouble(server.address, ClientTls(other.file))
        assert trouble(server.address, ClientTls(authority.file)) == ""
    with running(toy()) as server:
        assert "does not speak TLS" in trouble(server.address, ClientTls(authority.file))
        assert trouble(server.address, None) == ""
    assert trouble("127.0.0.1:1", None) == ""


def test_mutual_tls_and_expired_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ServerTls(*authority.issue("server"), client_authority=authority.file)
    good, old = authority.issue("good"), authority.issue("old", expired=True)
    with running(toy(), terms=terms("offload"), tls=tls) as server:
        for pair, joins in ((good, True), (old, False), ((None, None), False)):
            with Device(
                server.address, toy(), state=tmp_path / "a", connect_seconds=1, name="good",
                tls=ClientTls(authority.file, *pair),
            ) as device:  # fmt: skip
                assert device.joined is joins
                device.infer(example())


def test_a_certificate_speaks_for_the_device_it_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ServerTls(*authority.issue("server"), client_authority=authority.file)
    mine = ClientTls(authority.file, *authority.issue("camera-7"))
    with (
        running(toy(), terms=terms("offload"), tls=tls) as server,
        pytest.raises(InputError, match=r"certificate belongs to .*camera-7.*not to 'camera-8'"),
    ):
        Device(server.address, toy(), state=tmp_path / "a", tls=mine, name="camera-8")


def test_a_token_may_have_a_weight(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("a secret-a 3\nb secret-b\n")
    tokens = TokenFile(path)
    assert [tokens.entry(f"secret-{each}").weight for each in "ab"] == [3.0, 1.0]
    for bad in ("a secret 0", "a secret x", "a secret 1 2", "a secret nan"):
        path.write_text(bad)
        with pytest.raises(InputError, match="weight"):
            TokenFile(path)


def test_clear_start_up_errors(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.issue("one")
    _, key = authority.issue("two")
    with pytest.raises(InputError, match="no certificate with its key"):
        ServerTls(certificate, key).credentials()
    (tmp_path / "text").write_text("no certificate")
    with pytest.raises(InputError, match="must be PEM files"):
        ServerTls(tmp_path / "text", tmp_path / "text").credentials()
    with pytest.raises(InputError, match="cannot read"):
        ServerTls(tmp_path / "none", key).credentials()
    with pytest.raises(InputError, match="holds no certificate"):
        ClientTls(key).credentials()
    with pytest.raises(InputError, match="needs its key"):
        ClientTls(None, certificate).credentials()
    with (
        running(toy()) as server,
        pytest.raises(Exception, match="taken"),
    ):
        Running([toy()], ServerOptions(terms(), listen=server.address))
    with pytest.raises(InputError, match="HOST:PORT"):
        Running([toy()], ServerOptions(terms(), listen="nowhere"))
