"""Where CANS keeps what it can make or fetch again: weights, fetched models, compiled code."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path


def cache_folder(*names: str) -> Path:
    """A folder inside `$CANS_CACHE`, else the user's cache folder, else (not writable) a temporary
    one that lasts as long as this process needs it."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = Path(os.environ.get("CANS_CACHE") or f"{home}/cans").expanduser().resolve()
    try:
        folder = root.joinpath(*names)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        folder = _temporary().joinpath(*names)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@cache
def _temporary() -> Path:
    return Path(tempfile.mkdtemp(prefix="cans-"))
