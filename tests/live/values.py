"""Hypothesis strategies and small builders for the live tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from cans.learning import PoolKey, SufficientStatistics, Upload

KEY = PoolKey("model", "1", "fedlinucb-dw", "back", "everyone")


def statistics(seed: int, count: int = 3, dimension: int = 2) -> SufficientStatistics:
    """The statistics of so many honest observations."""
    rng = np.random.default_rng(seed)
    total = SufficientStatistics.zero(dimension)
    for _ in range(count):
        total += SufficientStatistics.of(rng.random(dimension), float(rng.random() * 100))
    return total


def upload(
    device: str = "a", sequence: int = 0, seed: int = 0, key: PoolKey = KEY, epoch: int = 0
) -> Upload:
    return Upload(device, "first", key, epoch, sequence, statistics(seed, 1 + seed % 4))


@st.composite
def some_statistics(draw: st.DrawFn) -> SufficientStatistics:
    return statistics(draw(st.integers(0, 2**32)), draw(st.integers(0, 9)), draw(st.integers(1, 6)))
