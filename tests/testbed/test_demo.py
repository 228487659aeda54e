"""What the demo tells, from samples made by hand; the demo itself runs in `test_running.py`."""

from __future__ import annotations

import pytest

from cans.testbed.demo.demo import demo_experiment
from cans.testbed.demo.story import Sample, Story
from cans.testbed.demo.view import View


def told() -> Story:
    """A device that learns, a link that changes, a server that goes."""
    story = Story(60.0, [("rpi5-1", "rpi5")])
    for second in range(60):
        phase, outage = int(second >= 27), 45 <= second < 51
        point = "fc" if outage else "block3"
        story.add(Sample(second, phase, outage, 0, "cans", 50.0, point, "uint8", not outage))
        story.add(Sample(second, phase, outage, 0, "local", 70.0, "fc", "uint8", False))
        if not outage:
            ms = 300.0 if phase else 90.0
            story.add(Sample(second, phase, False, 0, "offload", ms, "input", "uint8", True))
    return story


def test_the_story_fits_in_its_time() -> None:
    story = Story(60.0, [])
    assert 0 < story.change_at < 30 < story.kill_at < story.return_at < 55


def test_devices_are_unequal_and_need_no_root() -> None:
    experiment = demo_experiment(4)
    assert len({(each.type, each.slowdown) for each in experiment.devices}) == 4
    assert experiment.network == "loopback"


def test_a_fall_back_is_no_full_offload() -> None:
    story = told()
    story.add(Sample(46.0, 0, True, 0, "offload", 5.0, "input", "uint8", False))
    assert story.comparison(0, "offload") == pytest.approx(90.0)
    assert story.comparison(0, "local") == pytest.approx(70.0)
    assert story.latest(0) == pytest.approx(50.0)


def test_without_a_terminal_there_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    story, view = told(), View()
    story.tell("the link drops from 60 to 6 Mbps")
    with view.live(story):
        view.show(story)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("the link drops from 60 to 6 Mbps")
    assert lines[1].endswith(
        "rpi5-1 (rpi5): block3, uint8, now 50 ms, since the start 50 ms; "
        "local 70 ms, full offload 90 ms"
    )
    assert "\x1b" not in "".join(lines)


def test_the_summary_counts_every_inference(capsys: pytest.CaptureFixture[str]) -> None:
    story, view = told(), View()
    story.unanswered = 1
    view.summary(story)
    view.what_next()
    said = capsys.readouterr().out
    assert "61 inferences, 1 without an answer; 6 answered while the server was gone" in said
    assert "300" in said
    assert "try next" in said
