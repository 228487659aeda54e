"""`cans device --output`: the outputs of inferences, as files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from cans.errors import InputError, RunError
from cans.live.device.command.runner import Results, run_device
from live.running import running
from program.networks import classifier, picture, served


def test_a_folder_of_results(tmp_path: Path) -> None:
    model = classifier(tmp_path / "classifier.onnx")
    np.savez(tmp_path / "in.npz", x=picture(7))
    with running(served(model)) as server:
        done = subprocess.run(
            [sys.executable, "-m", "cans", "device", "--server", server.address,
             "--model", str(model), "--input", str(tmp_path / "in.npz"), "--count", "2",
             "--state", str(tmp_path / "state"), "--output", str(tmp_path / "out")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    scores, label = ort.InferenceSession(model).run(None, {"x": picture(7)})
    files = sorted(each.name for each in (tmp_path / "out").iterdir())
    assert files == ["000000.npz", "000001.npz"]
    for name in files:
        with np.load(tmp_path / "out" / name) as found:
            np.testing.assert_allclose(found["scores"], scores, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(found["label"], label)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_log_on_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write /dev/full: No space left"):
        run_device(
            "127.0.0.1:1", "mobilenet_v2", "auto", "random", 2, 0.0, Path("/dev/full"), True,
            state=tmp_path / "state", connect_seconds=0.1,
        )  # fmt: skip


def test_one_file_holds_one_result(tmp_path: Path) -> None:
    Results(tmp_path / "one.npz", 1).write(0, {"y": np.arange(3)})
    with np.load(tmp_path / "one.npz") as found:
        assert found["y"].tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="name a folder"):
        Results(tmp_path / "one.npz", 2)
    with pytest.raises(InputError, match="cannot write"):
        Results(tmp_path / "one.npz" / "inside", 2)
