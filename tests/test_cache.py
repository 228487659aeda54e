"""One folder for everything that can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cans.cache import cache_folder


def test_it_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANS_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    assert cache_folder("compiled", "x") == tmp_path / "mine" / "compiled" / "x"
    assert cache_folder("compiled", "x").is_dir()


def test_a_place_that_cannot_be_written_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CANS_CACHE", str(tmp_path / "file"))
    assert cache_folder("models").is_dir()
    assert cache_folder("models") == cache_folder("models")


def test_compiled_code_goes_nowhere_else(compiled) -> None:
    for name, function in compiled.items():
        place = Path(function.__wrapped__._cache._impl.locator.get_cache_path())
        assert cache_folder("compiled") in place.parents, name
