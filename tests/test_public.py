"""The public surface is a tested list, and what the documents show runs."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import cans
import cans.learning

REPOSITORY = Path(__file__).parent.parent


def test_public_names() -> None:
    assert cans.__all__ == [
        "CansError",
        "Device",
        "InferenceSession",
        "InputError",
        "ModelError",
        "PartitionTable",
        "RunError",
        "__version__",
        "simulate",
    ]
    for name in cans.__all__:
        assert getattr(cans, name) is not None
    assert dir(cans) == sorted(cans.__all__)


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
