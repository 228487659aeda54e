"""A server that is attacked keeps its memory and its honest devices."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cans.errors import Busy, Refused, RemoteProtocolError
from cans.live.device.hooked import HookedDevice as Device
from cans.live.logs import LONGEST_VALUE, MOST_LINES, Throttle, bounded, extras
from cans.live.server.backends import Answer, BackEnds, Work
from cans.live.server.catalogue import Catalogue
from cans.live.server.door import connections, room
from cans.live.server.door.gate import _forget_frames
from cans.live.server.door.quotas import QuotaOptions, Quotas
from cans.live.server.door.room import Room
from cans.live.split import SplitModel
from cans.live.wire.inference import InferHeader, TensorMeta
from cans.models import ImageSpec, all_codecs, get_codec
from tests.live.attackers import ATTACKS, WITHOUT_TOKEN, Attack
from tests.live.attacks import LARGEST_MB, Server, attacked, information, zeros
from tests.live.running import running, terms
from tests.live.toy import example, toy

# --- real servers ---


@pytest.fixture(scope="module")
def attacked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Device]]:
    folder = tmp_path_factory.mktemp("attacked")
    server = Server("mobilenet_v2", folder)
    try:
        with server.honest_device() as device:
            yield server, device
    finally:
        server.stop()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_for_a_second(name: str, attacked_server: tuple[Server, Device]) -> None:
    server, device = attacked_server
    token = "" if name in WITHOUT_TOKEN else "enemy-token"
    attack = Attack(server.port, 1.0, token, information(device))
    ATTACKS[name](attack)
    attack.close()
    assert attack.tried > 0
    device.infer(zeros(device))
    device.settle()
    assert device.last is not None
    assert device.last.answered_by.endswith(str(server.port))
    assert server.peak_mb() < LARGEST_MB


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_for_a_minute(name: str, tmp_path: Path) -> None:
    found = attacked(name, tmp_path, 60.0)
    assert found.fallbacks == 0
    assert found.peak_mb < LARGEST_MB
    assert found.attacked_ms <= 2 * found.calm_ms


def test_idle_connections_are_closed_and_used_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.1)
    with (
        running(toy(), terms=terms("cans", fresh_pools=True)) as server,
        Device(server.address, toy(), state=tmp_path) as device,
    ):
        silent = [socket.create_connection(("127.0.0.1", server.server.port)) for _ in range(50)]
        until = time.monotonic() + 20
        while server.server.connections.closed < 50 and time.monotonic() < until:
            time.sleep(0.05)
        assert server.server.connections.closed == 50
        for each in silent:
            each.close()
        time.sleep(0.7)  # the device says nothing for longer than that
        device.hooks.force = 0
        device.infer(example())
        device.settle()
        assert device.last is not None
        assert device.last.answered_by == server.address
        assert server.server.connections.closed == 50


def test_those_who_watch_and_hear_nothing_take_no_room(tmp_path: Path) -> None:
    with running(toy(), terms=terms("cans", fresh_pools=True)) as server:
        devices = [Device(server.address, toy(), state=tmp_path / str(i), seed=i) for i in range(3)]
        until = time.monotonic() + 20
        while len(server.server.pools._news._of_device) < 3 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(server.server.pools._news._of_device) == 3
        assert server.server.gate._room.used == 0
        for device in devices:
            device.close()


def test_one_identity_has_a_few_connections_only() -> None:
    seen = connections.Connections(1000)
    for port in range(connections.MOST_OF_ONE):
        seen.known(f"ipv4:10.0.0.1:{port}", "greedy")
    with pytest.raises(Refused, match="connections already"):
        seen.known("ipv4:10.0.0.1:999", "greedy")
    seen.known("ipv4:10.0.0.1:1000", "modest")
    seen._all["10.0.0.1", 5].since -= 60  # lost by the network, and nobody was told
    seen.known("ipv4:10.0.0.1:999", "greedy")
    assert ("10.0.0.1", 5) in seen._doomed(time.monotonic())
    with pytest.raises(Refused, match="connections already"):
        seen.known("ipv4:10.0.0.1:998", "greedy")


# --- room for requests ---


def of(function: Callable[[], Awaitable[None]]) -> None:
    async def bounded_in_time() -> None:
        async with asyncio.timeout(10):
            await function()

    asyncio.run(bounded_in_time())


def test_room_is_bounded_for_each_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WAIT_SECONDS", 0.05)

    async def main() -> None:
        found = Room(100, 40)
        a = await found.enter("a", 40)
        with pytest.raises(Busy):
            await found.enter("a", 1)
        b = await found.enter("b", 40)
        with pytest.raises(Busy):
            await found.enter("c", 40)
        b.shrink(10)
        await found.enter("c", 40)
        with pytest.raises(Busy, match="there is room for 40"):
            await found.enter("d", 41)
        a.leave()
        assert found.used == 50
        await b.grow(30)

    of(main)


def test_who_waits_for_room_gets_it_in_turn() -> None:
    async def main() -> None:
        found = Room(10, 10)
        first = await found.enter("a", 10)
        order: list[str] = []

        async def wait(name: str) -> None:
            place = await found.enter(name, 10)
            order.append(name)
            place.leave()

        waiting = []
        for name in ("greedy", "greedy", "greedy", "modest"):
            waiting.append(asyncio.create_task(wait(name)))
            await asyncio.sleep(0)
        waiting.pop(0).cancel()  # who gives up leaves nothing behind
        await asyncio.sleep(0)
        first.leave()
        await asyncio.gather(*waiting)
        assert order[:2] == ["greedy", "modest"]
        assert (found.used, found._waiting, found._used_by) == (0, {}, {})

    of(main)


def test_a_caller_has_so_many_requests_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WAIT_SECONDS", 0.05)

    async def main() -> None:
        found = Room(1 << 30, 1 << 30)
        places = [await found.enter("a", 1) for _ in range(room.MOST_INSIDE)]
        with pytest.raises(Busy):
            await found.enter("a", 1)
        await found.enter("b", 1)
        places[0].leave()
        await found.enter("a", 1)

    of(main)


# --- quotas ---


def test_new_senders_are_few_and_known_ones_free() -> None:
    quotas = Quotas(QuotaOptions(senders=3, senders_per_hour=3600.0, all_senders=5))
    for i in range(3):
        quotas.sender("a", i, 0.0)
    for _ in range(10):
        quotas.sender("a", 1, 0.0)
    with pytest.raises(Refused, match="one device, at most 3"):
        quotas.sender("a", 3, 0.0)
    quotas.sender("a", 3, 1.0)
    quotas.sender("b", 0, 1.0)
    with pytest.raises(Refused, match="all devices"):
        [quotas.sender(f"c{i}", i, 1.0) for i in range(20)]


def test_open_streams_are_counted_until_they_end() -> None:
    quotas = Quotas(QuotaOptions(watches=1, all_watches=2))
    with quotas.watching("a", 0.0):
        with pytest.raises(Refused, match="of one device"), quotas.watching("a", 0.0):
            pass
        with (
            quotas.watching("b", 0.0),
            pytest.raises(Refused, match="of all devices"),
            quotas.watching("c", 0.0),
        ):
            pass
    with quotas.watching("a", 0.0):
        pass


def test_a_quota_that_is_hit_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    quotas = Quotas(QuotaOptions(senders=1, senders_per_hour=0.0))
    quotas.sender("a", "the first", 0.0)
    for now in (0.0, 1.0, 2.0, 61.0):
        for i in range(5):
            with pytest.raises(Refused):
                quotas.sender("a", (now, i), now)
    assert [each.getMessage() for each in caplog.records] == ["quota reached"] * 2


# --- lines of the log ---


def test_a_refused_message_is_not_held_by_its_error() -> None:
    """Frames hold messages of megabytes, errors hold frames, and frames errors: a circle."""

    def read(data: bytes) -> int:
        try:
            return int(data)
        except ValueError:
            raise RemoteProtocolError("not a number") from None

    error: BaseException | None
    try:
        read(b"x" * 1000)
    except RemoteProtocolError as found:
        error = found
    assert error is not None
    assert error.__traceback__ is not None
    assert error.__context__ is not None
    _forget_frames(error)
    while error is not None:
        assert error.__traceback__ is None
        error = error.__context__


def test_lines_are_bounded_in_length_and_number() -> None:
    import logging

    assert len(bounded("x" * 10**6)) < LONGEST_VALUE + 20
    assert bounded(3.5) == 3.5
    said = {"device": "pi", "_ray_timestamp_ns": 1}  # the second: by a library, in every record
    assert extras(logging.makeLogRecord(said)) == {"device": "pi"}
    throttle = Throttle()
    kept = []
    for i in range(1000):
        record = logging.makeLogRecord({"msg": "refused", "created": 100.0 + i / 1000})
        kept.append(throttle.filter(record))
    assert sum(kept) == MOST_LINES
    later = logging.makeLogRecord({"msg": "refused", "created": 111.0})
    assert throttle.filter(later)
    assert later.not_shown == 1000 - MOST_LINES  # type: ignore[attr-defined]


# --- payloads ---


def asked(model: SplitModel, **changes: Any) -> InferHeader:
    tensors = tuple(map(TensorMeta.of, model.points[0].tensors))
    given: dict[str, Any] = {
        "device": "a", "incarnation": "1", "model": model.digest, "table": model.table.version,
        "point": 0, "codec": "float32", "tensors": tensors,
    }  # fmt: skip
    return InferHeader(**{**given, **changes})


def test_only_what_the_table_offers_is_decoded() -> None:
    model = toy()
    every = {(0, name): codec for name, codec in all_codecs().items()}
    model = replace(model, codecs={**model.codecs, **every})
    checked = BackEnds(Catalogue([model], terms()), _NoPool()).checked
    assert checked(asked(model)) is model
    for codec in ("jpeg", "uint8", "zstd"):
        with pytest.raises(RemoteProtocolError, match="is offered at point 0"):
            checked(asked(model, codec=codec))
    with pytest.raises(RemoteProtocolError, match="before encoding"):
        checked(asked(model, sizes=(64 << 20,)))


def test_a_picture_of_many_scans_is_refused_before_a_worker_is_taken() -> None:
    image = ImageSpec((0.0,), (1.0,))
    codec = get_codec("jpeg", image)
    shape = (1, 3, 32, 32)
    honest = codec.encode(np.random.default_rng(0).random(shape).astype(np.float32))
    codec.check(honest, shape, "float32")
    with pytest.raises(RemoteProtocolError, match="scans"):
        codec.check(bytes(honest) + b"\xff\xda" * 100, shape, "float32")


class _NoPool:
    inside = 0

    async def run(self, work: Work) -> Answer:
        raise AssertionError("nothing is run here")

    def close(self) -> None: ...
