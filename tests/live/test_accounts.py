"""Accounts: bounded and checked on the wire, made by devices, remembered by servers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cans.errors import RemoteProtocolError
from cans.learning import DeviceIdentity
from cans.live.device.hooked import HookedDevice
from cans.live.server.fleet.device_record import DeviceRecord
from cans.live.wire.account import (
    FELL_BACK,
    MOST_ROUNDS,
    NO_SERVER,
    Account,
    PlayedRound,
    account_in,
    account_out,
)
from cans.live.wire.messages import SyncRequest
from cans.live.wire.proto import edge
from tests.live.running import running, terms
from tests.live.toy import example, toy


def played(row: int = 1, age_ms: float = 0.0, outcome: int = 0) -> PlayedRound:
    return PlayedRound(row, 10.0, 1.0, 5.5, 3.25, 20.0, age_ms, outcome)


def test_an_account_survives_the_wire() -> None:
    account = Account(9, (played(), played(2, 30.0, FELL_BACK)), "because", (1.5, 2.5), (0.5, 0.25))
    assert account_in(account_out(account)) == account
    request = SyncRequest((), "camera", account)
    assert SyncRequest.from_bytes(request.to_bytes()) == request


def test_twelve_bytes_for_an_inference() -> None:
    one = account_out(Account(1000, (played(),))).ByteSize()
    many = account_out(Account(1000, (played(),) * 21)).ByteSize()
    assert (many - one) / 20 <= 12


def test_what_is_no_number_counts_as_nothing() -> None:
    found = account_in(account_out(Account(1, (played()._replace(link_ms=math.nan),))))
    assert found.rounds[0].link_ms == 0.0


BAD = [
    (edge.Account(row=[1] * (MOST_ROUNDS + 1)), "at most"),
    (edge.Account(row=[1], front=[1, 2]), "differ in length"),
    (edge.Account(row=[5000], front=[1], wait=[1], link=[1], server=[1], total=[1], age_ms=[1]),
     "beyond"),
    (edge.Account(predicted_ms=[1.0]), "0 widths"),
    (edge.Account(predicted_ms=[math.inf], width_ms=[0.0]), "finite"),
    (edge.Account(why="x" * 500), "500 characters"),
    (edge.Account(inferences=2**63), "beyond"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "reason"), BAD)
def test_accounts_that_are_refused(message, reason) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        account_in(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_account_or_refused(data) -> None:
    message = edge.Account()
    try:
        message.ParseFromString(data)
    except Exception:
        return
    try:
        account_in(message)
    except RemoteProtocolError:
        return


def test_accounts_ride_and_locals_are_known(tmp_path) -> None:
    split = toy()
    with (
        running(split, terms=terms("cans")) as server,
        HookedDevice(server.address, split, name="camera", state=tmp_path) as device,
    ):
        recorder = server.server.recorder
        device.hooks.force = 1
        device.infer(example())
        device.infer(example())
        device.hooks.force = split.table.local
        device.infer(example())
        device.settle()
        recorder.digest()
        record = recorder.devices["camera"]
        assert record.row == split.table.local
        assert record.state(recorder.now()) == "local"
        assert [each.played.row for each in record.rounds][-1] == split.table.local
        assert 2 <= len(record.rounds) <= 3  # an account that rode on a lost race is lost with it
        assert all(each.played.total_ms > 0 for each in record.rounds)
        calls = server.server.gate.calls
        alone = calls["Sync", "OK"]
        for _ in range(30):
            device.infer(example())
        device.settle()
        uploads = server.server.pools.merged
        assert calls["Sync", "OK"] - alone <= uploads + 2  # an account rides, or hardly ever goes


def test_a_record_of_old_news_does_not_go_back() -> None:
    split = toy()
    record = DeviceRecord(DeviceIdentity("d"), "toy", split.table)
    assert record.took(0, 100.0)
    assert not record.told(Account(3, (played(2, 5000.0), played(0, 4000.0))), 101.0)
    assert record.row == 0
    assert [row for _, row in record.history()] == [2, 0]
    local = split.table.local
    assert record.told(Account(4, (played(local, 0.0, NO_SERVER),)), 102.0)
    assert record.state(103.0) == "breaker"
    assert record.state(200.0) == "gone"
    assert not record.told(Account(5, (played(99),)), 103.0)  # of another table
    assert len(record.rounds) == 3
