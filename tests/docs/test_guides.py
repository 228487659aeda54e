"""Guides are followed word by word, with real processes."""

from __future__ import annotations

import json
import urllib.request

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.following import Follower
from tests.live.onnx_models import convolutions
from tests.live.process import free_port

GUIDE = ROOT / "docs" / "guide"


def follow(page, folder, machines=("",), **instead) -> Follower:
    """Everything a page says, with a model of one's own on these machines."""
    port, look, metrics = free_port(), free_port(), free_port()
    names = {
        "0.0.0.0:7070": f"127.0.0.1:{port}", "edge-box:7070": f"localhost:{port}",
        "127.0.0.1:7070": f"127.0.0.1:{port}", "127.0.0.1:7080": f"127.0.0.1:{look}",
        "127.0.0.1:9464": f"127.0.0.1:{metrics}", "--server edge-box": "--server localhost",
        **{name.replace("_", "-"): value for name, value in instead.items()},
    }  # fmt: skip
    follower = Follower(folder, names)
    follower.page = look  # type: ignore[attr-defined]
    for machine in machines:
        convolutions(follower.machine(machine) / "model.onnx", layers=5, channels=8, size=32)
    return follower


def test_ten_minutes(tmp_path) -> None:
    follower = follow("ten-minutes", tmp_path, ["edge-box"])
    said = {}
    with follower:
        for block in blocks(GUIDE / "ten-minutes.md"):
            said[block.line] = follower(block)
            if "cans status" in block.text:
                status = said[block.line]
        url = f"http://127.0.0.1:{follower.page}/api/device?name=camera-1"  # type: ignore[attr-defined]
        with urllib.request.urlopen(url, timeout=5) as answer:
            shown = json.load(answer)
    for name, kind in (("camera-1", "rpi5"), ("camera-2", "orin-nano")):
        lines = [each for each in status.splitlines() if each.startswith(name) and kind in each]
        assert "wifi" in lines[0]
    assert "why: " in status
    assert shown["inferences"] >= 20
    assert (tmp_path / "edge-box" / "tokens.txt").read_text().count("sha256:") == 1
    assert "camera-1.token" in {each.name for each in (tmp_path / "camera-1").iterdir()}


@pytest.mark.parametrize(
    "page",
    [
        "extending",
        "own-program",
        pytest.param("own-model", marks=pytest.mark.slow),
        pytest.param("operations", marks=pytest.mark.slow),
    ],
)
def test_the_other_guides(page, tmp_path) -> None:
    with follow(page, tmp_path) as follower:
        found = list(blocks(GUIDE / f"{page}.md"))
        assert found
        for block in found:
            follower(block)
    folder = follower.machine("")
    if page == "operations":
        assert json.loads((folder / "status.json").read_text())["devices"] == []
        assert (folder / "certs" / "camera-3.pem").exists()
        assert (folder / "monday.sqlite").stat().st_size > 0
    if page == "own-model":
        assert len(json.loads((folder / "points.json").read_text())["points"]) > 2


@pytest.mark.slow
def test_several_servers(tmp_path, postgres) -> None:
    first, second = free_port(), free_port()
    instead = {
        "postgresql://cans@db/cans": postgres.url, "0.0.0.0:7070": f"127.0.0.1:{first}",
        "0.0.0.0:7071": f"127.0.0.1:{second}", "edge-a:7070": f"localhost:{first}",
        "edge-b:7071": f"localhost:{second}",
    }  # fmt: skip
    with Follower(tmp_path, instead) as follower:
        for machine in ("edge-a", "edge-b"):
            convolutions(follower.machine(machine) / "model.onnx", layers=5, channels=8, size=32)
        for block in blocks(GUIDE / "several-servers.md"):
            follower(block)
    assert follower.said
