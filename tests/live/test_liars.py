"""Servers that lie: what protects the user never depends on a server's word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import cans
from cans.errors import RemoteProtocolError
from cans.live.device.device import Device
from cans.live.wire.messages import Welcome
from cans.live.wire.proto import edge
from cans.live.wire.terms import terms_in
from tests.live.running import running, terms
from tests.live.toy import example, toy


def test_a_table_that_says_nothing_is_sent_does_not_lift_the_limit(tmp_path: Path) -> None:
    """The server's table claims 0 bytes for every choice; the device counts for itself."""
    model = toy()
    lying = replace(model, table=replace(model.table, bytes_of=(0,) * model.table.choices))
    with running(lying, terms=terms("offload")) as server, Device(
        server.address, toy(), state=tmp_path, constraints=cans.Constraints(max_bytes=100)
    ) as device:  # fmt: skip
        result = device.run(example())
        assert result.report.answered_by == "device"
        assert result.report.bytes_up == 0
        assert ("Infer", "OK") not in server.server.gate.calls


def test_deeply_nested_hyperparameters_are_a_clear_error() -> None:
    message = edge.Welcome(hyperparameters="[" * 200_000)
    with pytest.raises(RemoteProtocolError):
        terms_in(message)
    with pytest.raises(RemoteProtocolError):
        Welcome.from_bytes(message.SerializeToString())
