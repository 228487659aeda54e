"""What `settle` waits for, and what a lost acknowledgement means for conservation."""

from __future__ import annotations

import pytest

from cans.errors import DeadlineExceeded
from cans.live.device.hooked import HookedDevice
from cans.live.device.hooks import Hooks
from cans.live.wire.link import Pending
from tests.live.faults import wait_until
from tests.live.ledger import Ledger, check_conservation
from tests.live.process import eager
from tests.live.proxy import Proxy
from tests.live.running import running, terms
from tests.live.toy import example, toy


class AnswerLost:
    """A call that arrives, and whose answer does not."""

    def __init__(self, call: Pending) -> None:
        self._call = call

    def when_done(self, function) -> None:
        self._call.when_done(function)

    def result(self, seconds: float | None = None):
        self._call.result(seconds)
        raise DeadlineExceeded("no answer in time")


@pytest.mark.parametrize("policy", ["fedlinucb-dw", "cans"])
def test_settle_waits_until_what_failed_before_is_acknowledged(tmp_path, policy) -> None:
    book = Ledger()
    with (
        running(toy(), terms=eager(policy)) as server,
        HookedDevice(
            server.address, toy(), "rpi5", state=tmp_path, hooks=Hooks(stopwatch=book)
        ) as device,
    ):
        device.settle()
        link = device._contact.links[0]
        sync, lost = link.sync, []

        def losing(request, seconds):
            call = sync(request, seconds)
            if request.uploads and not lost:
                lost.append(call)
                return AnswerLost(call)
            return call

        link.sync = losing
        while not lost:
            device.infer(example())
        device.settle()
        assert not device._experience.owes
        check_conservation(server.store(), [device], [book])


def test_an_upload_whose_acknowledgement_is_lost_counts_once(tmp_path) -> None:
    """The link breaks between an upload and its acknowledgement, and the device closes: what the
    pool and the device both hold is one upload, which the next process sends again in vain."""
    with running(toy(), terms=eager()) as server:
        proxy, books = Proxy(server.server.port), [Ledger(), Ledger()]
        hooks = Hooks(stopwatch=books[0])
        with HookedDevice(proxy.address, toy(), "rpi5", state=tmp_path, hooks=hooks) as device:
            device.settle()
            device.hooks.force = device.model.table.local
            proxy.reply_delay = 30.0
            merged = server.server.pools.merged
            while not device._session._on_wire:
                device.infer(example())
            wait_until(lambda: server.server.pools.merged > merged)
            proxy.cut()
        assert any(each.sent is not None for each in device._experience.state.records)
        check_conservation(server.store(), [device], books)
        proxy.close()
        hooks = Hooks(stopwatch=books[1])
        with HookedDevice(server.address, toy(), "rpi5", state=tmp_path, hooks=hooks) as again:
            again.settle()
            assert not again._experience.owes
            check_conservation(server.store(), [again], books)


def test_settle_waits_for_accounts(tmp_path) -> None:
    split = toy()
    with running(split, terms=terms("cans")) as server:
        proxy = Proxy(server.server.port)
        with HookedDevice(proxy.address, split, name="camera", state=tmp_path) as device:
            device.hooks.force = 1
            device.infer(example())
            device.settle()
            proxy.reply_delay = 0.3
            device.hooks.force = split.table.local
            device.infer(example())
            device.settle()
            recorder = server.server.recorder
            recorder.digest()
            assert recorder.devices["camera"].row == split.table.local
            assert not device._contact.telling
        proxy.close()
