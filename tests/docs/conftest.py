from __future__ import annotations

from tests.live.conftest import postgres

__all__ = ["postgres"]
