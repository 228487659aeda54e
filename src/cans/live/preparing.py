"""Every half of a model built and warm before the first request: small models can hold them all.

A testbed wants this, because the speed of a half then does not depend on how often it was chosen.
"""

from __future__ import annotations

import numpy as np

from cans.live.execution import SplitModel
from cans.live.warmstart import random_inputs

_RUNS = 3  # until a half is settled


def prepare_fronts(model: SplitModel) -> None:
    """Build and warm the front-ends, and the whole model with them."""
    inputs = random_inputs(model, np.random.default_rng(0))
    for point in range(1, model.last + 1):
        model.executor.prepare(point, ("front",), calibrate=False)
        for _ in range(_RUNS):
            model.executor.run_front(point, inputs)


def prepare_backs(model: SplitModel) -> None:
    """Build and warm the back-ends."""
    inputs = random_inputs(model, np.random.default_rng(0))
    for point in range(model.last):
        crossing = model.executor.run_front(point, inputs).crossing
        model.executor.prepare(point, ("back",), calibrate=False)
        for _ in range(_RUNS):
            model.executor.run_back(point, crossing)
