"""Every half of a model built and warm before the first request: small models can hold them all.

A testbed wants this, because the speed of a half then does not depend on how often it was chosen.
"""

from __future__ import annotations

import numpy as np

from cans.live.split import SplitModel
from cans.models.run.inputs import random_inputs

_RUNS = 3  # until a half is settled


def prepare_fronts(model: SplitModel, local: bool = True) -> None:
    """Build and warm the front-ends and the whole model, and what finishes here when the server
    does not: the chain of blocks that every fall-back takes its part of."""
    inputs = random_inputs(model.inputs, np.random.default_rng(0))
    if local:
        raw = model.executor.run_front(0, inputs).crossing
        for _ in range(_RUNS):
            model.executor.continue_locally(0, raw)
    for point in range(1, model.last + local):
        model.executor.prepare(point, ("front",), calibrate=False)
        for _ in range(_RUNS):
            model.executor.run_front(point, inputs)


def prepare_backs(model: SplitModel) -> None:
    """Build and warm the back-ends."""
    inputs = random_inputs(model.inputs, np.random.default_rng(0))
    for point in range(model.last):
        crossing = model.executor.run_front(point, inputs).crossing
        model.executor.prepare(point, ("back",), calibrate=False)
        for _ in range(_RUNS):
            model.executor.run_back(point, crossing)
