"""Whatever a page outside of the guides tells to type or to save works; what does not is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper

from cans import World, cli
from cans.live.store import open_store
from cans.simulation.sweep.grid import read_sweep
from cans.testbed.run.reading import read_experiment
from tests.docs.blocks import PAGES, ROOT, Block, blocks
from tests.docs.following import Follower
from tests.live.onnx_models import convolutions
from tests.live.process import free_port

APP = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession("resnet50.onnx", providers=["CPUExecutionProvider"])
picture = numpy.zeros(session.get_inputs()[0].shape, numpy.float32)
print(len(session.run(None, {"input": picture})), sys.argv[1:])
"""
BEFORE: dict[str, list[str]] = {
    "docs/programs.md": ["cans serve --model resnet50.onnx --store memory:",
                         "cans token add camera-9 --file tokens > camera-9.token"],
}  # fmt: skip
"""What the reader of a page has typed before, elsewhere."""
TYPED = {
    "README.md": False, "docs/page.md": False, "docs/operating.md": False, "docs/testbed.md": False,
    "docs/worlds.md": False, "docs/live.md": True, "docs/programs.md": True, "docs/models.md": True,
}  # fmt: skip
"""Pages of commands and programs, and whether they take long."""
SAVED = {"docs/live.md": "serve", "docs/sweeps.md": "sweep", "docs/testbed.md": "testbed",
         "docs/worlds.md": "world"}  # fmt: skip
"""Pages with files for a command."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if slow else ()) for page, slow in TYPED.items()],
)
def test_what_is_typed_works(page: str, tmp_path: Path) -> None:
    port, other, look = free_port(), free_port(), free_port()
    instead = {
        "edge-box:7070": f"localhost:{port}", "127.0.0.1:7070": f"127.0.0.1:{port}",
        "0.0.0.0:7070": f"127.0.0.1:{other}", "127.0.0.1:7080": f"127.0.0.1:{look}",
    }  # fmt: skip
    with Follower(tmp_path, instead, f"127.0.0.1:{port}") as follower:
        _furnish(follower.machine(""))
        found = [each for each in blocks(ROOT / page) if each.to_run]
        typed = [each for each in found if each.language != "toml" or each.title]
        assert typed
        for command in BEFORE.get(page, ()):
            follower.type(command, typed[0])
        for block in typed:
            follower(block)


def _furnish(folder: Path) -> None:
    """The files that pages speak of, small."""
    for model in ("resnet50", "speech"):
        convolutions(folder / f"{model}.onnx", layers=9, channels=4, size=224)
    (folder / "model.onnx").write_bytes((folder / "resnet50.onnx").read_bytes())
    clip = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
    np.savez(folder / "clip.npz", input=clip)
    (folder / "app.py").write_text(APP)
    open_store(f"sqlite:{folder / 'cans.sqlite'}").close()
    picture = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])
    found = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    kernel = numpy_helper.from_array(np.ones((3, 3, 1, 1), np.float32) / 3, "kernel")
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Conv", ["b", "kernel"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "detector", [picture], [found], [kernel])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              folder / "detector.onnx")  # fmt: skip


@pytest.mark.parametrize("page", SAVED)
def test_what_is_saved_is_read(page: str, tmp_path: Path) -> None:
    saved = [each for each in blocks(ROOT / page) if each.language == "toml"]
    assert saved
    for block in saved:
        file = tmp_path / "file.toml"
        file.write_text(block.text, encoding="utf-8")
        assert tomllib.loads(block.text)
        if SAVED[page] == "sweep":
            assert len(read_sweep(file).cells) > 10
        elif SAVED[page] == "testbed":
            assert read_experiment(str(file)).devices
        elif SAVED[page] == "world":
            assert World.from_toml(file).devices
        else:
            _parse("serve", "--config", str(file))


def _parse(command: str, *words: str) -> None:
    group: Any = typer.main.get_command(cli.app)
    group.commands[command].make_context(command, list(words))  # raises for what does not exist


def test_no_block_escapes() -> None:
    """Every block is run by a test here or in `test_guides`, or says why not, or is no code."""
    missed: list[str] = []
    for page in PAGES:
        for block in blocks(page):
            missed += [] if _is_seen_to(page, block) else [block.where]
    assert missed == [], "neither run nor marked: <!-- not run: REASON --> above it, or ```text"


def _is_seen_to(page: Path, block: Block) -> bool:
    if not block.to_run:
        typed = [each for each in block.text.splitlines() if each.startswith(("cans ", "make "))]
        doctest = ">>>" in block.text and name(page) == "README.md"
        return bool(block.not_run) or doctest or (block.language == "text" and not typed)
    if "guide" in page.parts:
        return block.language != "toml"
    return name(page) in (SAVED if block.language == "toml" else TYPED)


def test_reasons_name_tests_that_exist() -> None:
    for page in PAGES:
        for block in blocks(page):
            for word in block.not_run.split():
                if word.startswith("tests/"):
                    assert (ROOT / word).is_file(), block.where
