"""A device of the first release with a server of today, and the reverse: real processes, from the
sources of then (`git archive`); what they say is also recorded in `data/` (`test_upgrades.py`)."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.live.onnx_models import convolutions
from tests.live.process import free_port

ROOT = Path(__file__).parents[2]
FIRST_RELEASE = "f230c75a7327"


@pytest.fixture(scope="module")
def first_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archived = subprocess.run(
        ["git", "archive", FIRST_RELEASE, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if archived.returncode:
        pytest.skip("the sources of the first release are not in this copy of the repository")
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def environment(sources: Path, home: Path) -> dict[str, str]:
    kept = {"XDG_STATE_HOME": str(home / "state"), "XDG_CACHE_HOME": str(home / "cache")}
    return {**os.environ, **kept, "PYTHONPATH": str(sources), "HOME": str(home)}


@pytest.mark.slow
@pytest.mark.parametrize("old", ["device", "server"])
def test_neighbours_work_together(first_release: Path, tmp_path: Path, old: str) -> None:
    today = ROOT / "src"
    theirs, ours = (first_release, today) if old == "device" else (today, first_release)
    port, log = free_port(), tmp_path / "server.log"
    model = convolutions(tmp_path / "model.onnx", layers=5, channels=8, size=32)
    cans = [sys.executable, "-m", "cans"]
    with log.open("wb") as file:
        server = subprocess.Popen(
            [*cans, "serve", "--model", str(model), "--listen", f"127.0.0.1:{port}", "--store",
             f"sqlite:{tmp_path / 'pools.sqlite'}"],
            env=environment(ours, tmp_path / "server"), stdout=file, stderr=file, cwd=tmp_path,
        )  # fmt: skip
    try:
        until = time.monotonic() + 60
        while b"listening" not in log.read_bytes() and b"serving" not in log.read_bytes():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        for source in ((), ("--model", str(model))):  # fetched, and of its own
            done = subprocess.run(
                [*cans, "device", "--server", f"127.0.0.1:{port}", "--type", "rpi5", *source,
                 "--count", "30", "--json", "--state", str(tmp_path / f"state-{len(source)}")],
                env=environment(theirs, tmp_path / "device"), capture_output=True, text=True,
                timeout=120, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            said = json.loads(done.stdout)
            assert (said["joined"], said["answered"], said["failed"]) == (True, 30, 0)
            assert "refused" not in done.stderr, done.stderr
        assert b"refused" not in log.read_bytes(), log.read_text()
    finally:
        server.terminate()
        assert server.wait(30) == 0
