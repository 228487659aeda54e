"""What a recorder makes of happenings, and notices by itself."""

from __future__ import annotations

from dataclasses import replace

import cans
from cans.learning import DeviceIdentity
from cans.live.server.catalogue import Catalogue
from cans.live.server.fleet.device_record import SILENT_SECONDS
from cans.live.server.fleet.happenings import Answered, Joined, Rejected, Watching
from cans.live.server.fleet.learning import LearningView
from cans.live.server.fleet.recorder import MOST_DEVICES, Recorder
from tests.live.running import running, terms
from tests.live.toy import example, toy


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def recorder() -> tuple[Recorder, Clock]:
    clock = Clock()
    return Recorder(Catalogue([toy()], terms()), clock), clock


def kinds(found: Recorder) -> list[str]:
    return [each.kind for each in found.events]


def test_a_device_that_goes_is_told_of_once() -> None:
    found, clock = recorder()
    found.happenings.add(Joined(clock.now, DeviceIdentity("d"), toy().digest))
    found.happenings.add(Watching(clock.now, "d", True))
    found.digest()
    clock.now += 2 * SILENT_SECONDS
    found.digest()
    assert kinds(found) == ["join"]  # it listens: we would notice
    found.happenings.add(Watching(clock.now, "d", False))
    found.digest()
    clock.now += 2 * SILENT_SECONDS
    found.digest()
    found.digest()
    assert kinds(found) == ["join", "leave"]


def test_models_that_come_and_go_are_events() -> None:
    found, _ = recorder()
    found.digest()
    assert kinds(found) == []
    other = toy(size=32)
    found._catalogue.put(replace(other, name="other"))
    found.digest()
    found._catalogue.remove("other")
    found.digest()
    assert [each.text.split(" (")[0] for each in found.events] == [
        "other is served", "other is no longer served",
    ]  # fmt: skip


def test_refusals_are_not_told_every_millisecond() -> None:
    found, clock = recorder()
    for _ in range(50):
        found.happenings.add(Rejected(clock.now, "Infer", "RESOURCE_EXHAUSTED", "busy", ""))
    found.happenings.add(Rejected(clock.now, "Join", "NOT_FOUND", "no such model", ""))
    found.digest()
    assert kinds(found) == ["overload", "refusal"]


def test_devices_are_bounded_and_the_oldest_goes() -> None:
    found, clock = recorder()
    model = toy().digest
    for number in range(MOST_DEVICES + 5):
        clock.now += 1e-3
        found.happenings.add(Answered(clock.now, f"d{number}", model, 0, "float32", 0.0, 1.0))
    found.digest()
    assert len(found.devices) == MOST_DEVICES
    assert "d0" not in found.devices
    assert found.requests == MOST_DEVICES + 5
    unobserved = Recorder(Catalogue([toy()], terms()), clock, observed=False)
    unobserved.happenings.add(Answered(clock.now, "d", model, 0, "float32", 0.0, 1.0))
    unobserved.digest()
    assert unobserved.devices == {}


def test_pools_of_a_model_that_was_replaced_are_no_longer_shown(tmp_path) -> None:
    model = toy()
    with running(model, terms=terms("cans")) as server:
        with cans.Device(server.address, model, "rpi5", state=tmp_path) as device:
            device.infer(example())
            device.settle()
        view = LearningView(server.server)
        assert view.to_dict()["pools"]
        server.server.catalogue.put(replace(model, digest="another"))
        assert view.to_dict()["pools"] == []
