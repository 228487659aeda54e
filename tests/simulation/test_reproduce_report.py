"""The page stands alone, its figures are well-formed, and it is written whole or not at all."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from synthetic import all_alike, as_claimed, results
from typer.testing import CliRunner

from cans.cli import app
from cans.errors import InputError
from cans.learning.policies import POLICIES
from cans.simulation.reproduce import command
from cans.simulation.reproduce.command import reproduce, write_report
from cans.simulation.reproduce.figures.axes import linear_ticks, log_ticks
from cans.simulation.reproduce.figures.drawing import figure_svg, panel_svg
from cans.simulation.reproduce.figures.plots import LOOKS, Figure, Panel, line
from cans.simulation.reproduce.page.sections import SECTIONS
from cans.simulation.reproduce.studies.experiments import load_experiments, study
from cans.simulation.reproduce.studies.outcomes import play_all
from cans.simulation.run import simulate


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(results(as_claimed), folder)
    return folder


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "data", "action"):
                self.links.append(value or "")


def test_the_page_needs_nothing_else(written: Path) -> None:
    text = (written / "report.html").read_text("utf-8")
    page = _Page(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    urls = set(re.findall(r"https?://[^\"'\s<)]+", text))
    assert urls == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "@import" not in text
    assert "nan" not in re.findall(r"[a-z]+", " ".join(re.findall(r' d="([^"]*)"', text)))


def test_every_figure_is_well_formed_and_stands_alone(written: Path) -> None:
    pictures = sorted((written / "figures").glob("*.svg"))
    assert len(pictures) == sum(len(make(results(as_claimed)).figures) for make in SECTIONS)
    for picture in pictures:
        root = ElementTree.fromstring(picture.read_text("utf-8"))
        assert root.tag.endswith("svg")
        panels = root.findall("{http://www.w3.org/2000/svg}svg")
        assert len(panels) == 6


def test_every_section_survives_degenerate_numbers(tmp_path: Path) -> None:
    write_report(results(all_alike, seeds=1, quick=True), tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_a_panel_names_what_its_axes_cannot_show() -> None:
    x = [1.0, 2.0, 3.0]
    same = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    lines = [line("fedlinucb-dw", x, same), line("linucb", x, same), line("oracle", x, 0 * same)]
    svg = panel_svg(Panel("A < B", "rounds", "regret", lines), "p")
    ElementTree.fromstring(svg)
    assert "zero: Oracle" in svg
    assert "same as FedLinUCB-DW: LinUCB" in svg
    assert "A &lt; B" in svg


def test_looks_are_distinct_and_legends_have_their_order() -> None:
    methods = [name for name in LOOKS if name in POLICIES]
    assert len({LOOKS[name].colour for name in methods}) == len(methods)
    x, samples = [1.0, 2.0], np.ones((2, 2))
    panel = Panel("", "", "", [line(name, x, samples) for name in reversed(methods)])
    legend = Figure("f", [("row", [panel])]).legend()
    assert [each.look for each in legend] == methods
    assert figure_svg(Figure("f", [("row", [panel])])).count("<title>") == len(methods)


def test_ticks_lie_inside_and_are_few() -> None:
    for low, high in ((0.0, 1.0), (3.0, 2500.0), (0.2, 0.21), (8.0, 11.0), (1e-3, 1e6)):
        for ticks in (linear_ticks(low, high), log_ticks(max(low, 1e-3), high)):
            assert len(ticks) <= 8
            assert all(low - 1e-9 <= tick <= high * 1.001 for tick in ticks)


def test_experiments_are_found_and_shared() -> None:
    full, quick = load_experiments(False), load_experiments(True)
    assert set(full) == set(quick) == {
        "ablation", "bounds", "case-study", "comparison", "fleet-size", "gamma"
    }  # fmt: skip
    compared = set(full["comparison"].studies())
    assert set(full["ablation"].studies()) <= compared
    assert full["fleet-size"].values("devices") == [10, 25, 50]
    assert full["gamma"].values("gamma") == [0.0, 0.1, 0.2, 0.3]
    assert study(gamma=0.0, gamma_mode="round") == study(gamma_mode="device")
    assert sum(1 for each in quick.values() for _ in each.studies()) < sum(
        1 for each in full.values() for _ in each.studies()
    )


def test_types_split_a_fleet_equally_and_change_no_latency() -> None:
    world = study(devices=24, types=12).make_world()
    assert np.bincount(world.type_of).tolist() == [2] * 12
    few = study(devices=24, types=3).make_world()
    assert len(world.types) == 12
    for device in range(24):
        assert world.segments_ms(device)[0].tolist() == few.segments_ms(device)[0].tolist()


@pytest.mark.usefixtures("compiled")
def test_a_study_gives_the_numbers_of_cans_simulate() -> None:
    outcome = play_all(study(policy="linucb", rounds=120, devices=5), 2)
    runs = simulate("vgg16", "linucb", rounds=120, devices=5, seeds=2, engine="fast").runs
    assert outcome.regret_ms.tolist() == [run.regret_ms for run in runs]
    assert outcome.curves["regret"][0, -1] == pytest.approx(runs[0].regret_ms)
    assert outcome.checkpoints[-1] == 120
    assert outcome.at("latency", 50)[0] == pytest.approx(runs[0].latency_curve()[49])


@pytest.mark.usefixtures("compiled")
def test_the_command_writes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "QUICK_SEEDS", 2)
    out = tmp_path / "new" / "report"
    answer = CliRunner().invoke(app, ["reproduce", "--quick", "--out", str(out)])
    assert answer.exit_code == 0, answer.output
    assert sorted(each.name for each in out.iterdir()) == [
        "beyond.json", "claims.json", "figures", "report.html"
    ]  # fmt: skip
    assert answer.stdout.count("\n│ C") == len(json.loads((out / "claims.json").read_text("utf-8")))
    assert answer.stdout.rstrip().endswith("report.html")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No runs: the results are there at once."""
    monkeypatch.setattr(command, "numba_installed", lambda: True)
    monkeypatch.setattr(command, "run_experiments", lambda *_: results(as_claimed))
    monkeypatch.setattr(command, "run_beyond_the_paper", lambda *_: None)
    monkeypatch.setattr(command, "run_everyone_at_once", lambda *_: None)


@pytest.mark.usefixtures("made_up")
def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    reproduce(tmp_path)
    reproduce(tmp_path)  # a second time replaces the first
    assert (tmp_path / "notes.txt").read_text("utf-8") == "mine"
    assert (tmp_path / "report.html").exists()


@pytest.mark.usefixtures("made_up")
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "render", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("bad", ["a-file", "a-file/below"])
def test_a_bad_folder_is_one_clear_error(tmp_path: Path, bad: str) -> None:
    (tmp_path / "a-file").write_text("", "utf-8")
    with pytest.raises(InputError, match="--out"):
        reproduce(tmp_path / bad)


def test_without_numba_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "numba_installed", lambda: False)
    with pytest.raises(InputError, match="pip install"):
        reproduce(tmp_path)
