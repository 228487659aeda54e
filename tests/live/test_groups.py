"""Types that nobody typed, over a real socket: the server finds a device's group by its speed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.wire.messages import JoinRequest
from tests.live.faults import wait_until
from tests.live.ledger import Ledger, check_conservation
from tests.live.running import running, terms
from tests.live.toy import example, toy


def front_scopes(device: Device) -> set[str]:
    return {each.key.scope for each in device._experience.state.records if each.key.part == "front"}


def test_devices_without_a_type_are_grouped_and_keep_their_group(tmp_path: Path) -> None:
    books = [Ledger() for _ in range(3)]
    devices = []
    with running(toy(), terms=terms("cans")) as server:
        for number, book in enumerate(books):
            with Device(
                server.address, toy(), state=tmp_path / str(number % 2), hooks=Hooks(stopwatch=book)
            ) as device:
                devices.append(device)
                for seed in range(4):
                    device.infer(example(seed=seed))
                assert device.group.startswith("auto-")
                assert front_scopes(device) == {f"group:{device.group}"}
                assert device.identity.type == "auto"
                device.settle()
        again = devices[2]  # the first device once more
        assert again.identity.incarnation == devices[0].identity.incarnation
        assert again.group == devices[0].group
        check_conservation(server.store(), devices[1:], books)


def test_a_given_type_is_a_prefix(tmp_path: Path) -> None:
    with (
        running(toy(), terms=terms("cans")) as server,
        Device(server.address, toy(), "rpi5", state=tmp_path) as device,
    ):
        assert device.group == "rpi5/auto-1"


def test_policies_of_the_paper_go_by_the_type_as_it_is(tmp_path: Path) -> None:
    with (
        running(toy(), terms=terms("fedlinucb-dw")) as server,
        Device(server.address, toy(), "rpi5", state=tmp_path) as device,
    ):
        device.infer(example())
        assert device.group == "rpi5"


def test_a_device_without_its_server_is_of_the_group_of_last_time(tmp_path: Path) -> None:
    with (
        running(toy(), terms=terms("cans")) as server,
        Device(server.address, toy(), state=tmp_path) as device,
    ):
        found = device.group
    with Device(server.address, toy(), state=tmp_path, connect_seconds=0.3) as device:
        assert device.group == found
        device.infer(example())


def test_a_device_that_became_another_machine_moves_and_nothing_is_lost(tmp_path: Path) -> None:
    book = Ledger()
    with (
        running(toy(), terms=terms("cans")) as server,
        Device(server.address, toy(), state=tmp_path, hooks=Hooks(stopwatch=book)) as device,
    ):
        for seed in range(6):
            device.infer(example(seed=seed))
        device.settle()
        before = device.group
        learner = device._experience.learner
        assert learner is not None

        # What the agent does when the front's pace has left its range for good.
        with device._turns.turn(time.monotonic() + 5.0):
            device._contact.whole_ms = 20 * max(device._contact.whole_ms, 3.0)
            who, digest = device._experience.state.identity, device.model.digest
            device._contact.join_later(0, who, digest, moved=True)

        wait_until(lambda: device.group != before)
        for seed in range(6):
            device.infer(example(seed=seed))
        device.settle()
        assert front_scopes(device) == {f"group:{device.group}"}
        former = {each.key.scope for each in device._experience.state.former}
        assert former == {f"group:{before}"}, "what it said stays booked where it was said"
        epochs = {account.key.scope: account.pool.epoch for account in server.store().accounts()}
        assert epochs[f"group:{before}"] == 0, "the group it left goes on"
        assert f"group:{device.group}" in epochs


@pytest.mark.parametrize("ms", [-1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(ms: float) -> None:
    from cans.errors import RemoteProtocolError
    from cans.learning import DeviceIdentity

    with pytest.raises(RemoteProtocolError, match="whole model"):
        JoinRequest.from_bytes(JoinRequest(DeviceIdentity("a"), whole_ms=ms).to_bytes())
