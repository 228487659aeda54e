"""The public surface is a tested list, and what the documents show runs."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import cans
import cans.learning

REPOSITORY = Path(__file__).parent.parent


def test_public_names() -> None:
    assert cans.__all__ == [
        "Busy",
        "CansError",
        "ClientTls",
        "Constraints",
        "DeadlineExceeded",
        "Device",
        "InferenceSession",
        "InputError",
        "ModelError",
        "PartitionTable",
        "Policy",
        "Refused",
        "Report",
        "Result",
        "RunError",
        "Server",
        "Unreachable",
        "__version__",
        "simulate",
    ]
    for name in cans.__all__:
        assert getattr(cans, name) is not None
    assert dir(cans) == sorted(cans.__all__)


USER = """
import cans
import numpy as np

with cans.Server(["mobilenet_v2"], listen="127.0.0.1:0") as server:
    with cans.Device(
        server.address, "mobilenet_v2", "rpi5", deadline_ms=500.0,
        constraints=cans.Constraints(max_bytes=10_000), tls=cans.ClientTls(),
    ) as device:
        result: cans.Result = device.run(np.zeros((1, 3, 224, 224), np.float32))
        reveal_type(result.outputs)
        report: cans.Report = result.report
        reveal_type(report.total_ms)
        for each in device.stream([np.zeros(1)], in_flight=2):
            reveal_type(each)
try:
    reveal_type(cans.simulate("vgg16"))
except cans.Unreachable:
    pass
cans.Device("a:1", deadline="soon")
"""


def test_a_program_of_a_user_is_type_checked(tmp_path: Path) -> None:
    """No public name is `Any`, and a wrong option is found before the program runs."""
    script = tmp_path / "user.py"
    script.write_text(USER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(script)],
        capture_output=True, text=True, cwd=REPOSITORY, timeout=150,
    )  # fmt: skip
    assert 'Revealed type is "Any"' not in done.stdout
    assert done.stdout.count("Revealed type") == 4, done.stdout
    assert 'Unexpected keyword argument "deadline"' in done.stdout
    assert done.stdout.count("error:") == 1, done.stdout


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
