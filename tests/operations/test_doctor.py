"""`cans doctor` says what is there, and fails when something must be repaired."""

from __future__ import annotations

import json
import socket

from typer.testing import CliRunner

from cans import cli
from tests.live.running import running
from tests.live.toy import toy


def findings(*words: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(cli.app, ["doctor", "--json", *words])
    found = json.loads(done.stdout)["findings"]
    return done.exit_code, {each["about"]: each for each in found}


def test_this_machine_can_run_the_tests() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, found = findings("--port", str(port))
    assert code == 0
    assert "CPUExecutionProvider" in found["providers"]["found"]
    assert "onnxruntime" in found["packages"]["found"]
    assert found[f"port {port}"]["state"] == "note"
    assert "--listen" in found[f"port {port}"]["advice"]
    assert {"python", "threads", "memory", "clock", "privileges"} <= set(found)


def test_a_server_is_looked_at() -> None:
    with running(toy()) as server:
        code, found = findings("--server", server.address)
        assert code == 0
        assert found["server"]["state"] == "good"
    code, found = findings("--server", server.address)
    assert code == 1
    assert "firewall" in found["server"]["advice"]


def test_without_json_every_piece_of_advice_has_a_line() -> None:
    done = CliRunner().invoke(cli.app, ["doctor"])
    assert done.exit_code == 0
    assert done.stdout.count("ok  ") > 8
    wrong = CliRunner().invoke(cli.app, ["doctor", "--server", "nowhere"])
    assert "HOST:PORT" in str(wrong.exception)
