"""`cans serve --policy mymodule:policy`: devices follow it and need no module."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from cans.live.device.device import Device
from cans.live.store import open_store
from tests.learning.test_own_policy import MINE
from tests.live.onnx_models import convolutions
from tests.live.process import free_port


def test_a_served_policy_needs_no_module_on_the_device(tmp_path: Path) -> None:
    """The module lies in the server's folder alone; the device is this process, elsewhere."""
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "policy_of_mine.py").write_text(MINE)
    model, port, store = convolutions(tmp_path / "small.onnx"), free_port(), tmp_path / "pools"
    words = [
        "serve", "--policy", "policy_of_mine:policy", "--model", str(model), "--listen",
        f"127.0.0.1:{port}", "--store", f"sqlite:{store}", "--log", "json",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    server = subprocess.Popen(
        [sys.executable, "-m", "cans", *words],
        stderr=subprocess.PIPE, text=True, cwd=folder, env=environment,
    )  # fmt: skip
    assert server.stderr is not None
    first = server.stderr.readline()
    try:
        assert json.loads(first)["event"] == "listening", first
        with Device(f"127.0.0.1:{port}", str(model), "rpi5", state=tmp_path / "state") as device:
            learner = device._experience.learner
            assert learner is not None
            assert (learner.policy.name, learner.policy.ridge) == ("mine", 0.3)
            assert [part.name for part in learner.policy.parts] == ["front", "rest"]
            assert "policy_of_mine" not in sys.modules
            for _ in range(5):
                device.infer({"input": np.zeros((1, 3, 16, 16), np.float32)})
            device.settle()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        server.stderr.close()
    kept = open_store(f"sqlite:{store}")
    pools = {account.key.part: account.total for account in kept.accounts()}
    kept.close()
    assert pools["front"] >= 5, "offline runs are uploaded when it joins"
    assert set(pools) == {"front", "rest"}
