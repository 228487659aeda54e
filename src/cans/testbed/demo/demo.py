"""`cans demo`: a server and unequal devices as real processes, for about a minute, without root.

A little before half-time the link becomes slow; later the server is killed for a few seconds.
Beside every device runs a twin that only ever computes all by itself, or sends all to the server:
the comparison. While the server is gone nobody could send it anything, and the twins do not try.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cans.testbed.demo.picture import draw
from cans.testbed.demo.story import Sample, Story
from cans.testbed.demo.view import View
from cans.testbed.run.experiment import Change, DeviceGroup, Experiment, Link, PolicyChoice
from cans.testbed.run.experiment_run import Testbed
from cans.testbed.run.fleet import ProcessFleet
from cans.testbed.run.interruption import check
from cans.testbed.run.layout import DeviceSeat

_KINDS = (("orin-nano", 2.0), ("xavier-nx", 4.0), ("rpi5", 7.0), ("rpi5", 8.0))
_FAST, _SLOW = 60.0, 6.0  # Mbps before and after the change
_PAUSE = 0.12  # seconds between two inferences of a device
_COMPARE_EVERY = 6  # inferences


def demo_experiment(devices: int) -> Experiment:
    """What the demo runs, as an experiment."""
    kinds = [_KINDS[number % len(_KINDS)] for number in range(devices)]
    return Experiment(
        name="demo",
        devices=tuple(DeviceGroup(kind, slowdown=slowdown) for kind, slowdown in kinds),
        links=(Link("wifi", _FAST),),
        changes=(Change(1, "wifi", _SLOW),),
        policies=(PolicyChoice("cans"),),
        codecs=("uint8",),
        max_points=10,
        network="loopback",
        start_together=True,
    )


def run_demo(devices: int, seconds: float, out: Path, page: str = "", look: bool = False) -> None:
    """From the first process to the last table; with the live page on HOST:PORT, in a browser if
    one is to be opened."""
    view = View()
    view.say(f"starting a server and {devices} devices; this takes some seconds ...")
    experiment = demo_experiment(devices)
    with Testbed(experiment, "mobilenet_v2", lambda _: None, dashboard=page) as testbed:
        if page:
            view.say(f"live page: http://{page}/")
        if page and look:
            webbrowser.open(f"http://{page}/")
        story = Story(seconds, [(seat.name, seat.group.type) for seat in testbed.seats])
        actors = [Actor(testbed, seat, story) for seat in testbed.seats]
        try:
            for actor in actors:
                actor.start()
            with view.live(story):
                _direct(testbed, story, actors, view)
        finally:
            story.over.set()
            for actor in actors:
                actor.join(15)
    _raise_first(actors)
    view.summary(story)
    picture = out / "demo.png"
    drawn = draw(story, picture)
    view.say(f"picture: {picture}" if drawn else "for a picture: pip install 'cans-edge[sim]'")
    view.what_next()


def page_address(wanted: str | None) -> str:
    """HOST:PORT of the live page: the one that was asked for, or any free one; empty where the
    packages of the page are not installed."""
    if wanted is not None:
        return wanted
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        return ""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def has_a_screen() -> bool:
    """Whether a browser window could be seen by anyone."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(each) for each in screens)


def _direct(testbed: Testbed, story: Story, actors: list[Actor], view: View) -> None:
    """Change the link and take the server away when their time comes."""
    server = testbed.fleets[1].server
    while (now := story.now()) < story.seconds and all(each.error is None for each in actors):
        if now >= story.change_at and story.phase == 0:
            testbed.set_rates(1)
            story.phase = 1
            story.tell(f"the link drops from {_FAST:g} to {_SLOW:g} Mbps")
        if story.kill_at <= now < story.return_at and not story.server_down:
            server.kill()
            story.server_down = True
            story.tell("the server is killed; devices go on by themselves")
        if now >= story.return_at and story.server_down:
            server.start_again()
            story.server_down = False
            story.tell("the server is started again; devices will join it")
        view.show(story)
        check()
        time.sleep(0.2)


def _raise_first(actors: list[Actor]) -> None:
    for actor in actors:
        if actor.error is not None:
            raise actor.error


class Actor(threading.Thread):
    """Has one device infer again and again, and its twin now and then."""

    def __init__(self, testbed: Testbed, seat: DeviceSeat, story: Story) -> None:
        super().__init__(name=f"actor-{seat.name}", daemon=True)
        self._twins, self._fleet = testbed.fleets
        self._offload, self._local = (
            testbed.outcome.choices[0].row,
            testbed.outcome.choices[-1].row,
        )
        self._seat = seat
        self._story = story
        self._phase = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            number = 0
            while not self._story.over.is_set():
                self._turn(number)
                number += 1
                self._story.over.wait(_PAUSE)
        except Exception as error:
            if not self._story.over.is_set():
                self.error = error

    def _turn(self, number: int) -> None:
        device = self._seat.index
        if self._phase != self._story.phase:
            self._phase = self._story.phase
            self._fleet.follow_rate(device)
            self._twins.follow_rate(device)
        self._record("cans", self._infer(self._fleet))
        if number % _COMPARE_EVERY == 1:
            for how, row in (("local", self._local), ("offload", self._offload)):
                if how == "local" or not self._story.server_down:
                    self._twins.force(device, row)
                    self._record(how, self._infer(self._twins))

    def _infer(self, fleet: ProcessFleet) -> dict[str, Any]:
        return fleet.infer(self._seat.index)

    def _record(self, how: str, answer: dict[str, Any]) -> None:
        if "error" in answer:
            self._story.unanswered += how == "cans"
            return
        self._story.add(
            Sample(
                self._story.now(), self._phase, self._story.server_down, self._seat.index, how,
                answer["waited_ms"], answer["point_name"], answer["codec"],
                answer["answered_by"] != "device",
            )
        )  # fmt: skip
