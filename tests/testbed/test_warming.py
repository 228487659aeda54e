"""Warming up runs every back-end of a server and teaches nobody anything."""

from __future__ import annotations

import numpy as np

from cans.live.split import Cutting
from cans.live.splitting import load_model, split
from cans.models.run.inputs import random_inputs
from cans.testbed.run.warming import warm_servers
from tests.live.running import running


def test_afterwards_every_back_end_is_settled() -> None:
    cutting = Cutting(max_points=4)
    model = split(load_model("mobilenet_v2", cutting), cutting, codecs=["uint8"], features="ops13")
    with running(model) as server:
        warm_servers("mobilenet_v2", [server.address], ["uint8"], "ops13", 4)
        inputs = random_inputs(model.inputs, np.random.default_rng(0))
        for point in range(model.last):
            crossing = model.executor.run_front(point, inputs).crossing
            settled = (model.executor.run_back(point, crossing).settled for _ in range(500))
            assert any(settled), "only what is being built elsewhere may disturb it for a while"
