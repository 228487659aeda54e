"""The public surface is a tested list, and what the documents show runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

import cans
import cans.learning
from cans import cli

REPOSITORY = Path(__file__).parent.parent


def test_public_names() -> None:
    assert cans.__all__ == [
        "AccuracyBudget",
        "Busy",
        "CansError",
        "ClientTls",
        "Constraints",
        "DeadlineExceeded",
        "Device",
        "InferenceSession",
        "InputError",
        "LocalProtocolError",
        "ModelError",
        "PartitionTable",
        "Policy",
        "ProtocolError",
        "Refused",
        "RemoteProtocolError",
        "Report",
        "Result",
        "RunError",
        "Server",
        "ServerTls",
        "Simulation",
        "StoreError",
        "Unreachable",
        "World",
        "__version__",
        "simulate",
    ]
    for name in cans.__all__:
        assert getattr(cans, name) is not None
    assert dir(cans) == sorted(cans.__all__)


def test_every_error_is_public() -> None:
    found = [cans.CansError]
    for kind in found:
        found += [each for each in kind.__subclasses__() if each.__module__ == "cans.errors"]
    assert len(found) == 12
    for kind in found:
        assert getattr(cans, kind.__name__) is kind


USER = """
import cans
import numpy as np

with cans.Server(["mobilenet_v2"], listen="127.0.0.1:0") as server:
    with cans.Device(
        server.address, "mobilenet_v2", "rpi5", deadline_ms=500.0, provider="cpu", threads=2,
        constraints=cans.Constraints(max_bytes=10_000, avoid_after_ms=90.0),
        accuracy=cans.AccuracyBudget(max_error=0.1), tls=cans.ClientTls(),
    ) as device:
        result: cans.Result = device.run(np.zeros((1, 3, 224, 224), np.float32))
        reveal_type(result.outputs)
        report: cans.Report = result.report
        reveal_type(report.total_ms)
        for each in device.stream([np.zeros(1)], in_flight=2):
            reveal_type(each)
try:
    found: cans.Simulation = cans.simulate("vgg16")
    reveal_type(found.mean_regret_ms)
    reveal_type(found.mean_estimation_error_ms)
except (cans.ProtocolError, cans.LocalProtocolError, cans.RemoteProtocolError) as error:
    reveal_type(error)
except (cans.Refused, cans.Unreachable, cans.DeadlineExceeded, cans.StoreError) as trouble:
    reveal_type(trouble.exit_code)
_ = cans.Device("a:1", deadline="soon")
"""
SEEN = ("dict[", "float", "Result", "float", "float | None", "ProtocolError", "int")
CHECKERS = {
    "mypy": ("--strict", "--cache-dir=.cache"),
    "basedpyright": ("--pythonpath", sys.executable),
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_program_of_a_user_is_type_checked(checker: str, tmp_path: Path) -> None:
    """No public name is `Any`, and a wrong option is found before the program runs."""
    script = tmp_path / "user.py"
    script.write_text(USER)
    sources = str(Path(cans.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", checker, *CHECKERS[checker], "user.py"],
        capture_output=True, text=True, cwd=tmp_path, timeout=150,
        env={**os.environ, "MYPYPATH": sources, "PYTHONPATH": sources},
    )  # fmt: skip
    types = re.findall(r'(?:Revealed type|Type of .*) is "(.*)"', done.stdout)
    assert len(types) == len(SEEN), done.stdout
    for found, wanted in zip(types, SEEN, strict=True):
        assert wanted in found
        assert found not in ("Any", "Unknown")
    assert done.stdout.count("error:") == 1, done.stdout
    assert re.search(r'(Unexpected keyword argument|No parameter named) "deadline"', done.stdout)


def test_options_of_a_device_have_the_names_of_the_command_line() -> None:
    arguments = set(inspect.signature(cans.Device).parameters)
    arguments |= {each.name for each in fields(cans.Constraints)}
    arguments |= {each.name for each in fields(cans.AccuracyBudget)}
    arguments |= {f"tls_{each.name}" for each in fields(cans.ClientTls)}
    command: Any = typer.main.get_command(cli.app).commands["device"]  # type: ignore[attr-defined]
    options = {each.opts[0].lstrip("-").replace("-", "_") for each in command.params
               if not each.hidden}  # fmt: skip
    of_the_command = {
        "input", "output", "count", "interval_ms", "log_jsonl", "json", "config", "help",
    }  # fmt: skip
    assert options - of_the_command <= arguments
    # and what Python alone has: objects, or what a command line decides by itself
    assert arguments - options == {
        "accuracy", "connect_seconds", "constraints", "keep_memory", "progress",
        "share",
    }  # fmt: skip


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        cans.nonsense  # noqa: B018


def test_learning_names() -> None:
    assert cans.learning.__all__ == [
        "POLICIES",
        "Choice",
        "Context",
        "DeviceIdentity",
        "DeviceLearner",
        "Download",
        "EdgeAggregator",
        "Hyperparameters",
        "Latencies",
        "Part",
        "PartRecord",
        "PartitionTable",
        "Policy",
        "Pool",
        "PoolKey",
        "SufficientStatistics",
        "Upload",
        "policy_named",
    ]


def modules_with_doctests() -> list[str]:
    """Every module of every package that shows an example."""
    sources = Path(cans.__file__).parent
    return [
        ".".join(("cans", *path.relative_to(sources).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for path in sorted(sources.rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_doctests())
def test_doctests(name) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("document", ["README.md"])
def test_documents_run(document) -> None:
    result = doctest.testfile(str(REPOSITORY / document), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0
