"""`docs/architecture.md` names what really runs: both walks are traced and compared with it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import cans
from cans.learning import Hyperparameters, policy_named
from cans.live.device.device import Device
from cans.live.split import Cutting
from cans.live.splitting import load_model, split
from cans.simulation.engines import reference
from cans.simulation.worlds.named import make_world
from tests.live.onnx_models import convolutions
from tests.live.running import running, terms

ROOT = Path(__file__).parent.parent
SOURCE = Path(str(cans.__file__)).parent
LIVE, SIMULATED = "### One live inference", "### One simulated round"

OF_A_USER = {"app.py", "my_policy.py", "my_codec.py"}
"""Files that a page tells its reader to write."""

Step = tuple[str, str]
"""File below `src/cans`, qualified name of a function in it."""


def section(heading: str) -> str:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return re.split(r"\n##+ ", text.split(heading + "\n", 1)[1], maxsplit=1)[0]


def steps(heading: str) -> list[Step]:
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (`.+?`) \|", section(heading), re.MULTILINE)
    return [(file, name) for file, names in rows for name in re.findall(r"`([\w.]+)`", names)]


def helpers(heading: str) -> set[str]:
    lines = re.findall(r"^- .*(?:\n  .*)*", section(heading), re.MULTILINE)
    return set(re.findall(r"`([\w/]+\.py)`", "\n".join(lines)))


class Traced:
    """Which functions of CANS ran while `on`, in all threads that started under this trace."""

    def __init__(self) -> None:
        self.on = False
        self.seen: set[Step] = set()
        self.calls: set[tuple[str, Step]] = set()
        """The file that calls, and what it calls."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.on and event == "call":
            file = _file(frame)
            if file is not None:
                step = file, frame.f_code.co_qualname
                self.seen.add(step)
                if frame.f_back and (caller := _file(frame.f_back)):
                    self.calls.add((caller, step))


def _file(frame: FrameType) -> str | None:
    """Below `src/cans`; None: not of CANS."""
    file = Path(frame.f_code.co_filename)
    return file.relative_to(SOURCE).as_posix() if file.is_relative_to(SOURCE) else None


@contextmanager
def traced() -> Iterator[Traced]:
    trace = Traced()
    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(trace)
    threading.setprofile(trace)
    try:
        yield trace
    finally:
        trace.on = False
        sys.setprofile(before[0])
        threading.setprofile(before[1])


def compare(heading: str, trace: Traced) -> None:
    walk = steps(heading)
    assert sorted(set(walk) - trace.seen) == []  # named, but does not run
    named = {file for file, _ in walk} | helpers(heading)
    assert sorted({file for file, _ in trace.seen} - named) == []  # runs, but is named nowhere
    aside = helpers(heading)
    assert [call for call in sorted(trace.calls) if call[0] in aside and call[1] in walk] == []


@pytest.mark.parametrize(("heading", "most"), [(LIVE, 25), (SIMULATED, 15)])
def test_walks_are_short_and_their_functions_exist(heading: str, most: int) -> None:
    walk = steps(heading)
    assert walk
    assert len({file for file, _ in walk}) <= most
    for file, name in walk:
        module = import_module("cans." + file.removesuffix(".py").replace("/", "."))
        assert attrgetter(name)(module)
    for file in helpers(heading):
        assert (SOURCE / file).is_file()


def test_folders_are_small() -> None:
    folders = {file.parent for file in SOURCE.rglob("*.py")}
    sizes = {folder: len({*folder.glob("*.py")} - {folder / "__init__.py"}) for folder in folders}
    assert {folder.name: size for folder, size in sizes.items() if size > 15} == {}


def test_files_named_in_the_docs_exist() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/*.py")}
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        if page.name != "CHANGELOG.md"
        for name in re.findall(r"`([\w/]+\.py)`", page.read_text(encoding="utf-8"))
        if not any(f"/{file}".endswith(f"/{name}") for file in files) and name not in OF_A_USER
    }
    assert sorted(missing) == []


def test_live_walk(tmp_path: Path) -> None:
    file = convolutions(tmp_path / "model.onnx")
    model = split(load_model(file, Cutting()), Cutting())
    eager = terms("cans", hyperparameters=Hyperparameters(offline_runs=2, alpha=1e-6))
    image = np.zeros((1, 3, 16, 16), np.float32)
    with (
        traced() as trace,
        running(model, terms=eager) as server,
        Device(server.address, file, "type", state=tmp_path / "state", local=False) as device,
    ):
        device.infer(image)
        device.settle()
        for _ in range(50):  # until an observation is worth an upload
            trace.on = True
            device.infer(image)
            device.settle()
            trace.on = False
            if ("live/server/pools.py", "Pools.merge") in trace.seen:
                break
    compare(LIVE, trace)


def test_simulated_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    world, policy = make_world("paper", "resnet50", 3), policy_named("cans")
    episode = world.episode(20, 0, offline_runs=5, offline_whole=policy.offline_whole)
    enrol = reference.enrol
    with traced() as trace:

        def then_trace(*arguments: Any) -> None:
            enrol(*arguments)
            trace.on = True

        monkeypatch.setattr(reference, "enrol", then_trace)
        reference.play(world, policy, Hyperparameters(), episode)
    compare(SIMULATED, trace)
