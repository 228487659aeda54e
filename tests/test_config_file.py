"""`--config FILE.toml` gives every option of `serve` and `device`; mistakes are one line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from cans import cli
from tests.live.onnx_models import convolutions
from tests.live.process import free_port

CANS = [sys.executable, "-m", "cans"]
COMMANDS: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]


def parsed(command: str, *words: str) -> dict[str, Any]:
    """What a command would be called with."""
    found: dict[str, Any] = COMMANDS[command].make_context("cans", list(words)).params
    return found


def as_toml(value: Any) -> str:
    return json.dumps(value)  # of these values TOML writes the same


@pytest.mark.parametrize("underscores", [False, True])
@pytest.mark.parametrize("command", ["serve", "device"])
def test_every_option_can_be_in_the_file(command: str, underscores: bool, tmp_path: Path) -> None:
    given: dict[str, Any] = {}
    for each in COMMANDS[command].params:
        if each.name in ("config", "help"):
            continue
        value: Any = True if each.is_flag else "7"
        given[each.opts[0]] = value
    words = [word for name, value in given.items()
             for word in ([name] if value is True else [name, value])]  # fmt: skip
    expected = parsed(command, *words)
    lines = []
    for each in COMMANDS[command].params:
        if each.name in ("config", "help"):
            continue
        name = each.opts[0].lstrip("-")
        value = expected[each.name]
        shown = str(value) if isinstance(value, Path) else value
        lines.append(f"{name.replace('-', '_') if underscores else name} = {as_toml(shown)}")
    file = tmp_path / "all.toml"
    file.write_text("\n".join(lines))
    found = parsed(command, "--config", str(file))
    assert {**found, "config": None} == {**expected, "config": None}
    assert len(lines) > 25


def test_the_command_line_wins_and_defaults_come_last(tmp_path: Path) -> None:
    file = tmp_path / "device.toml"
    file.write_text(
        'server = "file:1"\ncount = 5\nno-local = true\nallow-codec = "uint8"\n'
        'exit = ["a:1", "b:1"]'
    )
    found = parsed("device", "--count", "9", "--config", str(file))
    assert (found["server"], found["count"], found["local"]) == ("file:1", 9, False)
    assert (list(found["allow_codec"]), list(found["exit_"])) == (["uint8"], ["a:1", "b:1"])
    assert (found["network"], found["deadline_ms"]) == ("default", 10_000.0)
    assert parsed("device", "--config", str(file), "--local")["local"] is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 3", "unknown option 'colour'; choose one of:"),
        ("config = 'x'", "unknown option 'config'"),
        ("count = '3'", "count must be an integer, not '3'"),
        ("count = true", "count must be an integer, not True"),
        ("interval-ms = 'x'", "interval-ms must be a number"),
        ("tls = 1", "tls must be true or false"),
        ("network = 7", "network must be a string"),
        ("state = []", "state must be a string"),
        ("exit = [1]", "exit must be a string"),
        ("max-bytes = 1\nmax_bytes = 2", "max_bytes is given twice"),
        ("local = true\nno-local = true", "no-local is given twice"),
        ("[device]\ncount = 1", "unknown option 'device'"),
        ("count", "is not a TOML file"),
        (None, "No such file"),
    ],
)
def test_mistakes_are_one_line(
    text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "device.toml"
    if text is not None:
        file.write_text(text)
    words = ["cans", "device", "--server", "127.0.0.1:1", "--config", str(file)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    shown = capsys.readouterr()
    assert (caught.value.code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert said in shown.err
    assert str(file) in shown.err


def test_a_server_and_a_device_from_files(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "server.toml").write_text(
        f'model = ["{convolutions(tmp_path / "small.onnx")}"]\nlisten = "127.0.0.1:1"\n'
        'store = "memory:"\ncodec = ["float32", "uint8"]\n'
    )
    (tmp_path / "device.toml").write_text(
        f'server = "127.0.0.1:{port}"\ncount = 2\njson = true\nstate = "{tmp_path / "state"}"\n'
    )
    words = ["serve", "--config", str(tmp_path / "server.toml"), "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen([*CANS, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "listening" in process.stderr.readline()
        words = ["device", "--config", str(tmp_path / "device.toml")]
        done = subprocess.run([*CANS, *words], capture_output=True, text=True, timeout=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["answered"], document["joined"], document["model"]) == (2, True, "small")
